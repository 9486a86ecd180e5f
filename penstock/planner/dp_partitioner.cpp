#include "penstock/planner/dp_partitioner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <tuple>

#include "penstock/util/arithmetic.h"

namespace penstock::planner {

namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

enum class Wanted : uint8_t { Any, Best };

// Decides whether a partition exists whose stages and cuts all take at most a given time, and finds one: any, or the best by the
// tie-breaks.
class Search {
 public:
  virtual ~Search() = default;
  virtual std::optional<Partition> within(double limit_ns, Wanted wanted) = 0;
};

double slowest_ns(const PartitionProblem& problem, const Partition& partition) {
  double slowest = 0;
  int begin = 0;
  for (size_t k = 0; k < partition.ends.size(); ++k) {
    slowest = std::max(slowest, problem.model.stage_ns(problem.states.segment(begin, partition.ends[k]), partition.replicas[k],
                                                       problem.memory.micro_batches));
    begin = partition.ends[k];
    if (begin != problem.states.full()) slowest = std::max(slowest, problem.model.cut_ns(problem.states.cut_bytes(begin)));
  }
  return slowest;
}

// Replicated stages. For every state, the cheapest way to cover the layers after it. Using fewer workers there never hurts what comes
// before: it leaves more workers and makes earlier stages shallower, so the lexicographically least cover of each rest is part of a least
// whole.
class ReplicatedSearch final : public Search {
 public:
  explicit ReplicatedSearch(const PartitionProblem& problem) : problem_(problem), covers_(static_cast<size_t>(problem.states.size())) {}

  std::optional<Partition> within(double limit_ns, Wanted wanted) override {
    limit_ns_ = limit_ns;
    cover_all(Wanted::Any);
    // Knowing the fewest workers of every rest, the second pass looks at little more than what ties.
    if (wanted == Wanted::Best) cover_all(Wanted::Best);
    if (!covers_.front().exists()) return std::nullopt;
    const CutStates& states = problem_.states;
    Partition partition;
    for (int i = 0; i != states.full(); i = covers_[static_cast<size_t>(i)].end) {
      partition.ends.push_back(covers_[static_cast<size_t>(i)].end);
      partition.replicas.push_back(covers_[static_cast<size_t>(i)].replicas);
    }
    partition.bottleneck_ns = slowest_ns(problem_, partition);
    return partition;
  }

 private:
  struct Cover {
    int workers = -1;
    int stages = 0;
    int64_t cut_bytes = 0;
    int end = -1;
    int replicas = 0;

    bool exists() const { return workers >= 0; }
    auto cost() const { return std::tie(workers, stages, cut_bytes); }
  };

  void cover_all(Wanted wanted) {
    const CutStates& states = problem_.states;
    covers_.back() = {0, 0, 0, -1, 0};
    covered_.assign(1, states.full());
    for (int i = states.full() - 1; i >= 0; --i) {
      Cover& cover = covers_[static_cast<size_t>(i)];
      const bool usable = i == 0 || problem_.model.cut_ns(states.cut_bytes(i)) <= limit_ns_;
      if (wanted == Wanted::Any) {
        cover = usable ? best_cover(i, problem_.workers, wanted) : Cover{};
      } else if (cover.exists()) {
        cover = best_cover(i, cover.workers, wanted);
      }
      if (cover.exists()) covered_.push_back(i);
    }
  }

  // The least cover of at most `workers` workers. Without regard to ties the nearest ends come first: they are close to the least number of
  // workers at once, which rules out most of the others.
  Cover best_cover(int i, int workers, Wanted wanted) const {
    Cover best;
    const int least_workers = least_workers_after(i);
    const size_t count = covered_.size();
    for (size_t k = 0; k < count; ++k) {
      consider(i, covered_[wanted == Wanted::Any ? count - 1 - k : k], workers, wanted, best);
      // The full state comes first for the best, so a single worker for everything cannot be beaten.
      if (best.workers == 1 || (wanted == Wanted::Any && best.exists() && best.workers <= least_workers)) break;
    }
    return best;
  }

  void consider(int i, int j, int workers, Wanted wanted, Cover& best) const {
    const CutStates& states = problem_.states;
    const Cover& rest = covers_[static_cast<size_t>(j)];
    // Covers with as many workers matter for the tie-breaks alone.
    const int allowed = !best.exists() ? workers : wanted == Wanted::Best ? best.workers : best.workers - 1;
    const int most = allowed - rest.workers;
    if (most < 1 || compute_ns(i, j) > limit_ns_ * most || !states.nested(i, j)) return;
    if (j == states.full() && i == 0 && problem_.at_least_two_stages) return;
    const int replicas = fewest_replicas(i, j, rest.workers, most);
    if (replicas == 0) return;
    const int64_t cut_bytes = j == states.full() ? 0 : saturating_add(rest.cut_bytes, states.cut_bytes(j));
    const Cover cover{replicas + rest.workers, rest.stages + 1, cut_bytes, j, replicas};
    if (!best.exists() || cover.cost() <= best.cost()) best = cover;
  }

  int least_workers_after(int i) const {
    const double remaining_ns = compute_ns(i, problem_.states.full());
    return remaining_ns > 0 ? static_cast<int>(std::min(std::ceil(remaining_ns / limit_ns_), 1e9)) : 1;
  }

  // No stage takes less than its computation shared out; for states that are not nested the value is meaningless and does no harm.
  double compute_ns(int i, int j) const {
    return static_cast<double>(problem_.states.sums(j).compute_ns - problem_.states.sums(i).compute_ns) * (1 - 1e-12);
  }

  int fewest_replicas(int i, int j, int workers_after, int most) const {
    const LayerSums sums = problem_.states.between(i, j);
    const SegmentCost segment{sums.compute_ns, sums.step_ns, sums.weight_bytes};
    int replicas = problem_.model.fewest_replicas(segment, limit_ns_, 1, most, problem_.memory.micro_batches);
    if (!problem_.memory.limited()) return replicas;
    while (replicas > 0) {
      const int fitting = problem_.memory.fewest_replicas(sums, workers_after, replicas, most);
      if (fitting == replicas || fitting == 0) return fitting;
      replicas = problem_.model.fewest_replicas(segment, limit_ns_, fitting, most, problem_.memory.micro_batches);
    }
    return 0;
  }

  const PartitionProblem& problem_;
  double limit_ns_ = kNoLimit;
  std::vector<Cover> covers_;
  std::vector<int> covered_;  ///< states that have a cover, descending
};

// One worker per stage and a fixed number of stages: for every state, the set of stage counts that can cover the layers after it, as a bit
// set.
class StraightSearch final : public Search {
 public:
  explicit StraightSearch(const PartitionProblem& problem)
      : problem_(problem),
        num_stages_(std::min(problem.workers, problem.states.num_layers())),
        words_(static_cast<size_t>(num_stages_) / 64 + 1),
        reachable_(words_ * static_cast<size_t>(problem.states.size())) {}

  std::optional<Partition> within(double limit_ns, Wanted /*wanted*/) override {
    limit_ns_ = limit_ns;
    std::fill(reachable_.begin(), reachable_.end(), 0);
    const CutStates& states = problem_.states;
    reachable_[words_ * static_cast<size_t>(states.full())] = 1;
    occupied_.assign(1, states.full());
    for (int i = states.full() - 1; i >= 0; --i) {
      if (i != 0 && problem_.model.cut_ns(states.cut_bytes(i)) > limit_ns) continue;
      bool any = false;
      for (const int j : occupied_) {
        if (stage_fits(i, j)) any = extend(i, j) || any;
      }
      if (any) occupied_.push_back(i);
    }
    if (!has(0, num_stages_)) return std::nullopt;
    Partition partition;
    int i = 0;
    for (int left = num_stages_; left > 0; --left) {
      i = next_end(i, left);
      partition.ends.push_back(i);
      partition.replicas.push_back(1);
    }
    partition.bottleneck_ns = slowest_ns(problem_, partition);
    return partition;
  }

 private:
  bool has(int state, int stages) const {
    return (reachable_[words_ * static_cast<size_t>(state) + static_cast<size_t>(stages) / 64] >> (stages % 64) & 1) != 0;
  }

  bool stage_fits(int i, int j) const {
    const double compute_ns = static_cast<double>(problem_.states.sums(j).compute_ns - problem_.states.sums(i).compute_ns);
    return compute_ns * (1 - 1e-12) <= limit_ns_ && problem_.states.nested(i, j) &&
           problem_.model.stage_ns(problem_.states.segment(i, j), 1, problem_.memory.micro_batches) <= limit_ns_;
  }

  // Adds to i's counts those of j plus one, as far as the stage's memory allows that depth; whether there were any.
  bool extend(int i, int j) {
    bool any = false;
    uint64_t* const to = reachable_.data() + words_ * static_cast<size_t>(i);
    const uint64_t* const from = reachable_.data() + words_ * static_cast<size_t>(j);
    const int deepest = deepest_that_fits(i, j);
    uint64_t carry = 0;
    for (size_t w = 0; w < words_; ++w) {
      uint64_t shifted = from[w] << 1 | carry;
      carry = from[w] >> 63;
      const int64_t allowed = int64_t{deepest} + 1 - static_cast<int64_t>(w) * 64;
      if (allowed <= 0) break;
      if (allowed < 64) shifted &= (uint64_t{1} << allowed) - 1;
      to[w] |= shifted;
      any = any || shifted != 0;
    }
    return any;
  }

  int deepest_that_fits(int i, int j) const {
    const LayerSums sums = problem_.states.between(i, j);
    if (problem_.memory.fits(sums, 1, num_stages_)) return num_stages_;
    int fits = 0;
    int fails = num_stages_;
    while (fails - fits > 1) {
      const int middle = fits + (fails - fits) / 2;
      (problem_.memory.fits(sums, 1, middle) ? fits : fails) = middle;
    }
    return fits;
  }

  // The end with the fewest bytes across its cut among those that the remaining stages can finish from.
  int next_end(int i, int left) const {
    const CutStates& states = problem_.states;
    int best = -1;
    for (int j = i + 1; j <= states.full(); ++j) {
      if (!has(j, left - 1) || !stage_fits(i, j) || deepest_that_fits(i, j) < left) continue;
      if (best < 0 || states.cut_bytes(j) < states.cut_bytes(best)) best = j;
    }
    return best;
  }

  const PartitionProblem& problem_;
  const int num_stages_;
  const size_t words_;
  double limit_ns_ = kNoLimit;
  std::vector<uint64_t> reachable_;
  std::vector<int> occupied_;  ///< states whose set has a member, descending
};

int64_t needed_bytes(const PartitionProblem& problem, const Partition& partition) {
  int64_t most = 0;
  int begin = 0;
  int workers_from_here = partition.num_workers();
  for (size_t k = 0; k < partition.ends.size(); ++k) {
    most = std::max(most,
                    problem.memory.stage_bytes(problem.states.between(begin, partition.ends[k]), partition.replicas[k], workers_from_here));
    workers_from_here -= partition.replicas[k];
    begin = partition.ends[k];
  }
  return most;
}

PartitionProblem normalised(const PartitionProblem& problem) {
  PartitionProblem result = problem;
  if (problem.workers == 1 || problem.states.num_layers() == 1) result.at_least_two_stages = false;
  result.memory.max_workers = problem.workers;
  return result;
}

std::unique_ptr<Search> make_search(const PartitionProblem& problem) {
  if (problem.straight) return std::make_unique<StraightSearch>(problem);
  return std::make_unique<ReplicatedSearch>(problem);
}

}  // namespace

int Partition::num_workers() const { return std::accumulate(replicas.begin(), replicas.end(), 0); }

std::optional<Partition> best_partition(const PartitionProblem& given) {
  const PartitionProblem problem = normalised(given);
  const auto search = make_search(problem);
  std::optional<Partition> best = search->within(kNoLimit, Wanted::Any);
  if (!best) return std::nullopt;
  // Every success lowers `high` to a time that some partition really takes; every failure raises `low`. What is left between them after the
  // bisection is settled by asking for anything strictly faster.
  double low = static_cast<double>(problem.states.sums(problem.states.full()).compute_ns) / problem.workers * (1 - 1e-12);
  double high = best->bottleneck_ns;
  const auto improve = [&](double limit_ns) {
    auto found = search->within(limit_ns, Wanted::Any);
    if (!found) return false;
    high = found->bottleneck_ns;
    return true;
  };
  while (high - low > 1e-6 * high) {
    const double middle = low + (high - low) / 2;
    if (!(middle < high) || !(middle > low)) break;
    if (!improve(middle)) low = middle;
  }
  while (high > 0 && improve(std::nextafter(high, 0.0))) {
  }
  return search->within(high, Wanted::Best);
}

std::optional<LeastMemory> least_memory(const PartitionProblem& given) {
  PartitionProblem problem = normalised(given);
  const auto search = make_search(problem);
  std::optional<LeastMemory> best;
  const auto improve = [&](int64_t limit_bytes) {
    problem.memory.limit_bytes = limit_bytes;
    auto found = search->within(kNoLimit, Wanted::Any);
    if (!found) return false;
    const int64_t needed = needed_bytes(problem, *found);
    best = LeastMemory{needed, std::move(*found)};
    return true;
  };
  if (!improve(INT64_MAX)) return std::nullopt;
  // As for the time: bisect, then ask for anything strictly smaller. A limit of 0 would mean none.
  int64_t low = 0;
  while (best->bytes - low > 1 + best->bytes / 10'000) {
    const int64_t middle = low + (best->bytes - low) / 2;
    if (!improve(middle)) low = middle;
  }
  while (best->bytes > 1 && improve(best->bytes - 1)) {
  }
  problem.memory.limit_bytes = std::max<int64_t>(best->bytes, 1);
  return LeastMemory{problem.memory.limit_bytes, search->within(kNoLimit, Wanted::Best).value()};
}

}  // namespace penstock::planner
