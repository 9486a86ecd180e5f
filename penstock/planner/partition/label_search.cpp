#include "penstock/planner/partition/label_search.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

#include "penstock/planner/partition/covered_states.h"
#include "penstock/planner/partition/label.h"
#include "penstock/planner/partition/label_rivals.h"
#include "penstock/planner/partition/load_bound.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::planner {

namespace {

// What is known from a partition that was found.
struct Success {
  double limit_ns = 0;
  int64_t memory = 0;
  double bottleneck_ns = 0;
  int workers = 0;
  std::vector<int> most_free;  ///< per state, and for all shorter times, of any label
};

class LabelSearch final : public StateSearch {
 public:
  explicit LabelSearch(const PartitionProblem& problem)
      : StateSearch(problem),
        loads_(problem, units_),
        single_layers_(single_layers(problem)),
        held_labels_(problem.budget),
        rivals_(labels_, held_labels_, units_),
        first_label_(static_cast<size_t>(states_.size()) + 1),
        limits_(static_cast<size_t>(states_.size())),
        likely_end_(static_cast<size_t>(states_.size()), states_.full()),
        covered_(states_, loads_) {
    counted_.add(static_cast<size_t>(states_.size()) * bytes_per_state());
    if (single_layers_) counts_ = layer_counts(states_);
  }

  std::optional<Partition> within(double limit_ns, Wanted wanted) override {
    const bool known = any_ && any_->bottleneck_ns <= limit_ns && any_->limit_ns >= limit_ns &&
                       any_->memory == problem_.memory.limit_bytes;
    if (wanted == Wanted::Any || !known) {
      if (!cover_all(limit_ns, Wanted::Any)) return std::nullopt;
      Partition partition = partition_of(*std::min_element(labels_of(0), labels_end(0), cheaper));
      any_ = Success{limit_ns,
                     problem_.memory.limit_bytes,
                     partition.bottleneck_ns,
                     partition.num_workers(),
                     {}};
      for (const Extent& extent : covered_.extents()) any_->most_free.push_back(extent.most_free);
      if (wanted == Wanted::Any) return partition;
    }
    prepare(limit_ns, Wanted::Best);
    front_ = front_bound(problem_, units_, loads_, nesting_, any_->most_free, limit_ns, speed_);
    cover_all(limit_ns, Wanted::Best);
    return partition_of(*std::min_element(labels_of(0), labels_end(0), cheaper));
  }

 private:
  static bool cheaper(const Label& a, const Label& b) { return a.cost() < b.cost(); }

  // Of the tables here, in CoveredStates, and of the bounds.
  size_t bytes_per_state() const {
    constexpr size_t kTables = sizeof(Extent) + sizeof(size_t) + 8 * sizeof(int);
    return kTables + 3 * loads_.size() * sizeof(double);
  }

  // Labels of a state are contiguous, those of later states come first.
  const Label* labels_of(int state) const {
    return labels_.data() + first_label_[static_cast<size_t>(state)];
  }
  const Label* labels_end(int state) const { return labels_.data() + last_label(state); }
  size_t last_label(int state) const {
    return state == 0 ? labels_.size() : first_label_[static_cast<size_t>(state) - 1];
  }

  bool cover_all(double limit_ns, Wanted wanted) {
    prepare(limit_ns, wanted);
    const int full = states_.full();
    if (loads_.load(full) > problem_.workers + kRounding) return false;
    labels_.clear();
    covered_.clear(nesting_.num_words());
    first_label_[static_cast<size_t>(full)] = 0;
    labels_.push_back({.free = problem_.workers});
    covered_.add(full, labels_);
    for (int i = full - 1; i >= 0; --i) {
      problem_.time.check();
      first_label_[static_cast<size_t>(i)] = labels_.size();
      if (limits_[static_cast<size_t>(i)] == 0 && i != 0) continue;
      cover(i);
      const auto found = std::span(labels_).subspan(first_label_[static_cast<size_t>(i)]);
      if (!found.empty()) covered_.add(i, found);
    }
    return labels_.size() > first_label_[0];
  }

  void prepare(double limit_ns, Wanted wanted) {
    limit_ns_ = limit_ns;
    wanted_ = wanted;
    speed_ = problem_.cluster.device_of(0).speed;
    memory_ = chooser_.memory_limit(problem_.cluster.device_of(0));
    rivals_.begin_search(wanted, wanted == Wanted::Best || memory_ > 0,
                         any_ ? any_->workers : problem_.workers);
    loads_.measure(limit_ns, speed_);
    for (int i = 0; i < states_.size(); ++i)
      limits_[static_cast<size_t>(i)] = widest_unit(problem_, units_, i, limit_ns_);
  }

  // All stages that begin at i, nearer ends first: of equal covers the first found stays.
  void cover(int i) {
    const auto s = static_cast<size_t>(i);
    const double load = loads_.load(i);
    least_free_ = i == 0 ? 0 : std::max(1, static_cast<int>(std::ceil(load - kRounding)));
    least_workers_ = least_free_;
    if (wanted_ == Wanted::Best) {
      least_free_ = front_.end[s];
      least_workers_ = front_.workers[s];
    }
    rivals_.begin_state(limits_[s], least_free_, least_workers_);
    const size_t begin = labels_.size();
    nesting_.supersets(i, supersets_);
    if (wanted_ == Wanted::Any && covered_.contains(likely_end_[s])) extend(i, likely_end_[s]);
    for (size_t b = s / 64; b < covered_.num_words(); ++b) {
      const uint64_t ends = supersets_[b] & covered_.word(b);
      if (ends != 0 && may_end_in(i, b)) extend_into(i, b, ends);
    }
    if (labels_.size() > begin) likely_end_[s] = labels_[begin].end;
  }

  // Whether a stage from i to some state of a block may be of use. A stage from i to j takes at
  // least the load between them in workers, so the promise of j and the load of i together are at
  // least the workers that stay free.
  bool may_end_in(int i, size_t b) const {
    const auto s = static_cast<size_t>(i);
    const Block& block = covered_.block(b);
    // A stage must leave room in the unit that it shares with the one before.
    const double most_replicas =
        limits_[s] == units_.top() ? problem_.workers : units_.size(limits_[s]) - 1;
    const double least = block.load - loads_.load(i);
    if (least > most_replicas || rivals_.hopeless(block.extent, least_workers(least))) return false;
    if (memory_ > 0 &&
        rivals_.hopeless(block.extent,
                         least_for_memory(i, block.sums, 0, block.extent, least_workers(least))))
      return false;
    const size_t tier = loads_.tier_of(least);
    return covered_.block_promise(tier, b) + loads_[tier].load[s] + kRounding >=
           rivals_.wanted_free();
  }

  void extend_into(int i, size_t b, uint64_t ends) {
    const auto s = static_cast<size_t>(i);
    const double load = loads_.load(i);
    for (; ends != 0; ends &= ends - 1) {
      const size_t j = b * 64 + static_cast<size_t>(std::countr_zero(ends));
      const size_t tier = loads_.tier_of(loads_.load(static_cast<int>(j)) - load);
      if (covered_.promise(tier, j) + loads_[tier].load[s] + kRounding >= rivals_.wanted_free())
        extend(i, static_cast<int>(j));
    }
  }

  void extend(int i, int j) {
    if (single_layers_ && counts_[static_cast<size_t>(j)] != counts_[static_cast<size_t>(i)] + 1)
      return;
    if (j == states_.full() && i == 0 && problem_.at_least_two_stages) return;
    const Extent& extent = covered_.extent(j);
    count_steps(static_cast<int64_t>(labels_.size() - first_label_[static_cast<size_t>(i)]) + 1);
    int least = loads_.least_replicas(i, j);
    if (rivals_.hopeless(extent, least)) return;
    if (memory_ > 0) {
      least = least_for_memory(i, states_.sums(j), states_.cut_bytes(j), extent, least);
      if (rivals_.hopeless(extent, least)) return;
    }
    for (size_t l = first_label_[static_cast<size_t>(j)]; l < last_label(j); ++l) {
      const Label label = labels_[l];
      count_steps(static_cast<int64_t>(labels_.size() - first_label_[static_cast<size_t>(i)]) + 1);
      if (rivals_.hopeless({label.free, label.workers}, least)) continue;
      place(i, j, static_cast<int>(l), label, least);
    }
  }

  // At least as many replicas as a stage from i on needs for its memory, when `sums` are no more
  // than those of the states that end it.
  int least_for_memory(int i, const LayerSums& sums, int64_t output_bytes, const Extent& extent,
                       int least) const {
    const LayerSums& before = states_.sums(i);
    StageMemory kept{.sums = {}, .input_bytes = states_.cut_bytes(i), .output_bytes = output_bytes};
    kept.sums.weight_bytes = std::max<int64_t>(0, sums.weight_bytes - before.weight_bytes);
    kept.sums.stash_bytes = std::max<int64_t>(0, sums.stash_bytes - before.stash_bytes);
    const int most = extent.most_free;
    int result = most + 1;
    for (const bool recompute : {false, true}) {
      if (problem_.recompute == (recompute ? Choice::Never : Choice::Always)) continue;
      kept.recompute = recompute;
      const int fewest = problem_.memory.fewest_replicas(kept, extent.fewest_workers, least,
                                                         std::min(most, result - 1), memory_);
      if (fewest > 0) result = fewest;
    }
    return result;
  }

  static int least_workers(double load) {
    return load > 1 ? static_cast<int>(std::ceil(load - kRounding)) : 1;
  }

  // Tries the stage (i, j) at the free end of a label, and at the ends of the units before it.
  void place(int i, int j, int label_index, const Label& label, int least) {
    const int top = units_.top();
    const int kind_after = limits_[static_cast<size_t>(j)];
    const int kind_before = limits_[static_cast<size_t>(i)];
    const int lowest = kind_after == top ? 0 : label.free - units_.before(label.free, kind_after);
    int best_kind = top;
    int previous = -1;
    for (int kind = 0; kind == 0 || (kind < kind_after && (kind_before < top || kind < best_kind));
         ++kind) {
      const int end = label.free - units_.before(label.free, kind);
      if (end == previous) continue;
      previous = end;
      const int most = most_replicas(label, end, lowest, kind_before);
      if (most < least) {
        if (kind_before == top) break;
        continue;
      }
      const auto [choice, found_kind] = fewest(i, j, label.workers, end, least, most);
      if (choice.replicas == 0) continue;
      best_kind = std::min(best_kind, found_kind);
      rivals_.offer(extended(label, label_index, j, end, choice));
    }
  }

  // Of a stage that ends at worker `end`, in front of a label and behind the worker `lowest`.
  int most_replicas(const Label& label, int end, int lowest, int kind_before) const {
    int most = end - std::max(lowest, rivals_.wanted_free());
    if (kind_before < units_.top()) most = std::min(most, units_.upto(end, kind_before) - 1);
    if (wanted_ == Wanted::Best)
      most = std::min(most, any_->workers - label.workers - least_workers_);
    return single_layers_ ? std::min(most, 1) : most;
  }

  // The label with a stage in front of it that ends at state j and worker `end`.
  Label extended(const Label& label, int label_index, int j, int end,
                 const StageChoice& choice) const {
    return {.free = end - choice.replicas,
            .workers = label.workers + choice.replicas,
            .stages = label.stages + 1,
            .end = j,
            .next = label_index,
            .place_end = end,
            .recompute = choice.recompute,
            .cut_bytes =
                j == states_.full() ? 0 : saturating_add(label.cut_bytes, states_.cut_bytes(j))};
  }

  // The fewest replicas that end at `end`, and the kind of unit that they span.
  std::pair<StageChoice, int> fewest(int i, int j, int workers_after, int end, int least,
                                     int most) const {
    int below = 0;
    for (int kind = 0; below < most; ++kind) {
      const int upto = kind == units_.top() ? most : std::min(most, units_.upto(end, kind));
      if (upto >= least && upto > below) {
        const StageChoice choice =
            chooser_.fewest(i, j, workers_after, limit_ns_, std::max(least, below + 1), upto,
                            units_.level(kind), speed_, memory_);
        if (choice.replicas > 0) return {choice, kind};
      }
      below = upto;
    }
    return {{}, units_.top()};
  }

  Partition partition_of(const Label& first) const {
    Partition partition;
    for (const Label* label = &first; label->end >= 0;
         label = &labels_[static_cast<size_t>(label->next)]) {
      const cluster::WorkerRange place{.first = label->free,
                                       .count = label->place_end - label->free};
      partition.append(label->end, place, label->recompute);
    }
    partition.bottleneck_ns = slowest_ns(problem_, partition);
    move_forward(problem_, units_, partition);
    return partition;
  }

  LoadBound loads_;
  const bool single_layers_;
  std::vector<int> counts_;  ///< layers per state, for single layers

  double limit_ns_ = kNoTimeLimit;
  Wanted wanted_ = Wanted::Any;
  double speed_ = 1;
  int64_t memory_ = 0;
  std::optional<Success> any_;  ///< the last one
  FrontBound front_;            ///< while the best is wanted

  std::vector<Label> labels_;
  HeldBytes held_labels_;
  LabelRivals rivals_;  ///< those of the state being covered
  std::vector<size_t> first_label_;
  /// Per state, the largest unit that the stages on both sides of the cut may span; 0: cannot be
  /// cut.
  std::vector<int> limits_;
  std::vector<int> likely_end_;  ///< per state, where its first stage ended last time
  CoveredStates covered_;
  StateSet supersets_;  ///< of the state being covered

  // Of the state being covered: workers that must stay free for the layers before it, and that
  // those use, at least.
  int least_free_ = 0;
  int least_workers_ = 0;
};

}  // namespace

std::unique_ptr<PartitionSearch> make_label_search(const PartitionProblem& problem) {
  return std::make_unique<LabelSearch>(problem);
}

}  // namespace penstock::planner
