#include "penstock/planner/partition/straight_search.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

namespace penstock::planner {

namespace {

using Words = std::vector<uint64_t>;

bool has_bit(const uint64_t* words, int bit) { return (words[bit / 64] >> (bit % 64) & 1) != 0; }
void set_bit(uint64_t* words, int bit) { words[bit / 64] |= uint64_t{1} << (bit % 64); }

// What does not depend on the time limit; negative while not known.
struct Stage {
  double ns = -1;
  int deepest = -1;  ///< the most stages from this one to the end with which it keeps its memory
};

// Beyond this many, stages are priced again for every time limit.
constexpr size_t kMostRemembered = size_t{1} << 22;

// Workers with the same speed and memory. A worker is known by the number of stages from its own to
// the end.
struct DeviceClass {
  cluster::Device device;
  Words counts;
  /// Without and with recomputation, by both states; empty until one is needed.
  std::array<std::vector<Stage>, 2> stages;
};

class StraightSearch final : public StateSearch {
 public:
  explicit StraightSearch(const PartitionProblem& problem)
      : StateSearch(problem),
        num_stages_(problem.workers),
        words_(static_cast<size_t>(num_stages_) / 64 + 1),
        reachable_(reserved(words_ * static_cast<size_t>(states_.size()))),
        extendable_(static_cast<size_t>(units_.top()) + 1, Words(words_)) {
    for (int count = 0; count <= num_stages_; ++count)
      held_.push_back(problem.memory.held(1, count));
    for (int count = 1; count <= num_stages_; ++count) {
      const int worker = num_stages_ - count;
      set_bit(class_of(problem.cluster.device_of(worker)).counts.data(), count);
      if (worker == 0) continue;
      for (int kind = units_.top();
           kind > 0 && (worker - 1) / units_.size(kind) == worker / units_.size(kind); --kind) {
        set_bit(extendable_[static_cast<size_t>(kind)].data(), count);
      }
    }
  }

  std::optional<Partition> within(double limit_ns, Wanted /*wanted*/) override {
    limit_ns_ = limit_ns;
    forget_other_memory();
    std::fill(reachable_.begin(), reachable_.end(), 0);
    set_bit(row(states_.full()), 0);
    occupied_.assign(nesting_.num_words(), 0);
    least_compute_ns_.assign(nesting_.num_words(), INT64_MAX);
    occupy(states_.full());
    for (int i = states_.full() - 1; i >= 0; --i) {
      problem_.time.check();
      if (extend_from_all(i) && i != 0 && restrict(i)) occupy(i);
    }
    if (!has_bit(row(0), num_stages_)) return std::nullopt;
    return read_back();
  }

 private:
  // The words of a table, counted before it is made.
  size_t reserved(size_t words) {
    counted_.add(words * sizeof(uint64_t));
    return words;
  }

  DeviceClass& class_of(const cluster::Device& device) {
    for (DeviceClass& known : classes_) {
      if (known.device.speed == device.speed && known.device.memory_bytes == device.memory_bytes)
        return known;
    }
    fastest_ = std::max(fastest_, device.speed);
    return classes_.emplace_back(DeviceClass{device, Words(words_), {}});
  }

  uint64_t* row(int state) { return reachable_.data() + words_ * static_cast<size_t>(state); }

  void occupy(int state) {
    const auto s = static_cast<size_t>(state);
    occupied_[s / 64] |= uint64_t{1} << (s % 64);
    least_compute_ns_[s / 64] = std::min(least_compute_ns_[s / 64], states_.sums(state).compute_ns);
  }

  bool within_bound(int i, int64_t compute_ns) const {
    return static_cast<double>(compute_ns - states_.sums(i).compute_ns) * (1 - 1e-12) <=
           limit_ns_ * fastest_;
  }

  bool extend_from_all(int i) {
    bool any = false;
    nesting_.supersets(i, supersets_);
    for (size_t w = static_cast<size_t>(i) / 64; w < occupied_.size(); ++w) {
      uint64_t left = supersets_[w] & occupied_[w];
      if (left == 0 || !within_bound(i, least_compute_ns_[w])) continue;
      for (; left != 0; left &= left - 1) {
        const int j = static_cast<int>(w * 64) + std::countr_zero(left);
        if (within_bound(i, states_.sums(j).compute_ns)) any = extend(i, j) || any;
      }
    }
    return any;
  }

  // Keeps the counts with which the cut before them is fast enough; whether any is left.
  bool restrict(int i) {
    const int kind = widest_unit(problem_, units_, i, limit_ns_);
    bool any = false;
    for (size_t w = 0; w < words_; ++w) {
      row(i)[w] &= extendable_[static_cast<size_t>(kind)][w];
      any = any || row(i)[w] != 0;
    }
    return any;
  }

  // Adds to i's counts those of j plus one, as far as time and memory allow the stage; whether
  // there were any.
  bool extend(int i, int j) {
    bool any = false;
    count_steps(static_cast<int64_t>(classes_.size() * words_));
    for (DeviceClass& workers : classes_) {
      const int deepest = deepest_that_fits(i, j, workers).first;
      uint64_t carry = 0;
      for (size_t w = 0; w < words_ && static_cast<int64_t>(w) * 64 <= deepest; ++w) {
        uint64_t shifted = row(j)[w] << 1 | carry;
        carry = row(j)[w] >> 63;
        shifted &= workers.counts[w];
        const int64_t allowed = int64_t{deepest} + 1 - static_cast<int64_t>(w) * 64;
        if (allowed < 64) shifted &= (uint64_t{1} << allowed) - 1;
        row(i)[w] |= shifted;
        any = any || shifted != 0;
      }
    }
    return any;
  }

  // The most stages from this one to the end with which it keeps its time and its memory, and
  // whether it recomputes for that; 0 for none.
  std::pair<int, bool> deepest_that_fits(int i, int j, DeviceClass& workers) {
    const int plain = problem_.recompute == Choice::Always ? 0 : deepest_with(i, j, workers, false);
    if (plain == num_stages_ || problem_.recompute == Choice::Never) return {plain, false};
    const int recomputing = deepest_with(i, j, workers, true);
    return recomputing > plain ? std::pair{recomputing, true} : std::pair{plain, false};
  }

  int deepest_with(int i, int j, DeviceClass& workers, bool recompute) {
    Stage& known = stage(i, j, workers, recompute);
    if (known.ns < 0) {
      known.ns = problem_.model.stage_ns(chooser_.segment(i, j, recompute, workers.device.speed), 1,
                                         0, problem_.memory.micro_batches);
    }
    if (!(known.ns <= limit_ns_)) return 0;
    if (known.deepest < 0) known.deepest = deepest_in_memory(i, j, workers.device, recompute);
    return known.deepest;
  }

  Stage& stage(int i, int j, DeviceClass& workers, bool recompute) {
    const auto n = static_cast<size_t>(states_.size());
    if (2 * classes_.size() * n * n > kMostRemembered) return unremembered_ = {};
    std::vector<Stage>& stages = workers.stages[recompute ? 1 : 0];
    if (stages.empty()) {
      counted_.add(n * n * sizeof(Stage));
      stages.resize(n * n);
    }
    return stages[static_cast<size_t>(i) * n + static_cast<size_t>(j)];
  }

  // Stages looked at one after the other need almost the same.
  int deepest_in_memory(int i, int j, const cluster::Device& device, bool recompute) {
    const int64_t limit = chooser_.memory_limit(device);
    if (limit <= 0) return num_stages_;
    const StageMemory kept = stage_memory(states_, i, j, recompute);
    const auto fits = [&](int depth) {
      return problem_.memory.stage_bytes(kept, held_[static_cast<size_t>(depth)]) <= limit;
    };
    int& last = last_deepest_[recompute ? 1 : 0];
    int fitting = 0;
    int failing = num_stages_ + 1;
    (last == 0 || fits(last) ? fitting : failing) = last;
    if (fitting == last && last < num_stages_) (fits(last + 1) ? fitting : failing) = last + 1;
    while (failing - fitting > 1) {
      const int middle = fitting + (failing - fitting) / 2;
      (fits(middle) ? fitting : failing) = middle;
    }
    return last = fitting;
  }

  // The memory limit may have changed since the last time.
  void forget_other_memory() {
    if (memory_limit_bytes_ == problem_.memory.limit_bytes) return;
    memory_limit_bytes_ = problem_.memory.limit_bytes;
    const size_t n = static_cast<size_t>(states_.size());
    for (DeviceClass& workers : classes_) {
      for (std::vector<Stage>& stages : workers.stages) {
        if (!stages.empty()) counted_.add(-static_cast<int64_t>(n * n * sizeof(Stage)));
        stages = {};
      }
    }
  }

  Partition read_back() {
    Partition partition;
    int i = 0;
    for (int left = num_stages_; left > 0; --left) {
      const int worker = num_stages_ - left;
      DeviceClass& workers = class_of(problem_.cluster.device_of(worker));
      const int begin = i;
      i = next_end(begin, left, workers);
      const bool plain =
          problem_.recompute != Choice::Always && deepest_with(begin, i, workers, false) >= left;
      partition.append(i, {.first = worker, .count = 1}, !plain);
    }
    partition.bottleneck_ns = slowest_ns(problem_, partition);
    return partition;
  }

  // The end with the fewest bytes across its cut among those that the remaining stages can finish
  // from.
  int next_end(int i, int left, DeviceClass& workers) {
    int best = -1;
    for (int j = i + 1; j <= states_.full(); ++j) {
      if (!has_bit(row(j), left - 1) || !within_bound(i, states_.sums(j).compute_ns) ||
          !states_.nested(i, j))
        continue;
      if (best >= 0 && states_.cut_bytes(j) >= states_.cut_bytes(best)) continue;
      if (deepest_that_fits(i, j, workers).first >= left) best = j;
    }
    return best;
  }

  const int num_stages_;
  const size_t words_;
  std::vector<Held> held_;  ///< by the stages from a worker's to the end
  double limit_ns_ = kNoTimeLimit;
  double fastest_ = 0;
  int64_t memory_limit_bytes_ = -1;  ///< the problem's, for which `classes_` have their stages
  std::vector<DeviceClass> classes_;
  Stage unremembered_;
  std::array<int, 2> last_deepest_{};
  std::vector<uint64_t> reachable_;        ///< `words_` per state
  StateSet occupied_;                      ///< states whose set has a member
  StateSet supersets_;                     ///< of the state being looked at
  std::vector<int64_t> least_compute_ns_;  ///< of each 64 states, of those that are occupied
  /// Per kind of unit, the counts before which a cut stays in one such unit.
  std::vector<Words> extendable_;
};

}  // namespace

std::unique_ptr<PartitionSearch> make_straight_search(const PartitionProblem& problem) {
  return std::make_unique<StraightSearch>(problem);
}

}  // namespace penstock::planner
