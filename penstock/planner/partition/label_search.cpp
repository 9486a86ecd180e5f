// Equal devices. For every cut state, from the output end, the covers of the layers after it that
// no other cover beats ("labels"): how many workers in front stay free, and what the cover costs.
// docs/planner.md, "Method", says why a label need only try a stage at its free end and at the ends
// of the units before it, and when one label beats another.
#include <algorithm>
#include <bit>
#include <climits>
#include <cmath>
#include <tuple>

#include "penstock/planner/cuts/nesting.h"
#include "penstock/planner/partition/load_bound.h"
#include "penstock/planner/partition/partition_search.h"
#include "penstock/planner/partition/placement_units.h"
#include "penstock/util/arithmetic.h"

namespace penstock::planner {

namespace {

// Up to so many workers in a unit, all numbers that may stay free in it are looked at one by one.
constexpr int kFewRooms = 16;

struct Label {
  int free = 0;  ///< workers before the first stage of the cover: its replicas begin here
  int workers = 0;
  int stages = 0;
  int end = -1;       ///< state that ends the first stage
  int next = -1;      ///< label of that state
  int place_end = 0;  ///< the first stage's replicas are [free, place_end)
  bool recompute = false;
  int64_t cut_bytes = 0;

  auto cost() const { return std::tie(workers, stages, cut_bytes); }
};

// What a stage that ends at a state may leave free, for one tier of stages: the most free workers
// of a label less the load of the state.
struct Promises {
  std::vector<double> state;
  std::vector<double> block;  ///< the largest of each block
};

// The best of all labels of a state or a block of them, each for itself.
struct Extent {
  int most_free = 0;
  int fewest_workers = INT_MAX / 2;

  void include(const Extent& other) {
    most_free = std::max(most_free, other.most_free);
    fewest_workers = std::min(fewest_workers, other.fewest_workers);
  }
};

// States are looked at in blocks of 64, with bounds that rule out all of them at once.
struct Block {
  /// The least of those with labels.
  double load = kNoTimeLimit;
  /// Likewise; the others are not used.
  LayerSums sums{.weight_bytes = INT64_MAX, .stash_bytes = INT64_MAX};
  Extent extent;
};

// What is known from a partition that was found.
struct Success {
  double limit_ns = 0;
  int64_t memory = 0;
  double bottleneck_ns = 0;
  int workers = 0;
  std::vector<int> most_free;  ///< per state, and for all shorter times, of any label
};

class LabelSearch final : public PartitionSearch {
 public:
  explicit LabelSearch(const PartitionProblem& problem)
      : problem_(problem),
        states_(problem.states),
        chooser_(problem),
        units_(problem.model.topology(), problem.workers),
        loads_(problem, units_),
        nesting_(problem.states),
        single_layers_(single_layers(problem)),
        first_label_(static_cast<size_t>(states_.size()) + 1),
        limits_(static_cast<size_t>(states_.size())),
        likely_end_(static_cast<size_t>(states_.size()), states_.full()),
        extents_(static_cast<size_t>(states_.size())),
        promises_(loads_.size()) {
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
      for (const Extent& extent : extents_) any_->most_free.push_back(extent.most_free);
      if (wanted == Wanted::Any) return partition;
    }
    prepare(limit_ns, Wanted::Best);
    front_ = front_bound(problem_, units_, loads_, nesting_, any_->most_free, limit_ns, speed_);
    cover_all(limit_ns, Wanted::Best);
    return partition_of(*std::min_element(labels_of(0), labels_end(0), cheaper));
  }

 private:
  static bool cheaper(const Label& a, const Label& b) { return a.cost() < b.cost(); }

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
    extents_.assign(static_cast<size_t>(states_.size()), {.most_free = -1});
    covered_.assign(nesting_.num_words(), 0);
    blocks_.assign(nesting_.num_words(), {});
    for (Promises& promises : promises_) {
      promises.state.assign(static_cast<size_t>(states_.size()), 0);
      promises.block.assign(nesting_.num_words(), -kNoTimeLimit);
    }
    first_label_[static_cast<size_t>(full)] = 0;
    labels_.push_back({.free = problem_.workers});
    add_covered(full);
    for (int i = full - 1; i >= 0; --i) {
      first_label_[static_cast<size_t>(i)] = labels_.size();
      if (limits_[static_cast<size_t>(i)] == 0 && i != 0) continue;
      cover(i);
      if (labels_.size() > first_label_[static_cast<size_t>(i)]) add_covered(i);
    }
    return labels_.size() > first_label_[0];
  }

  void prepare(double limit_ns, Wanted wanted) {
    limit_ns_ = limit_ns;
    wanted_ = wanted;
    speed_ = problem_.cluster.device_of(0).speed;
    memory_ = chooser_.memory_limit(problem_.cluster.device_of(0));
    counts_workers_ = wanted == Wanted::Best || memory_ > 0;
    loads_.measure(limit_ns, speed_);
    for (int i = 0; i < states_.size(); ++i) {
      int kind = units_.top();
      if (i != 0 && i != states_.full()) {
        while (kind > 0 &&
               !(problem_.model.cut_ns(states_.cut_bytes(i), units_.level(kind)) <= limit_ns_))
          --kind;
      }
      limits_[static_cast<size_t>(i)] = kind;
    }
  }

  void add_covered(int state) {
    const auto s = static_cast<size_t>(state);
    Extent& extent = extents_[s];
    for (size_t l = first_label_[s]; l < labels_.size(); ++l)
      extent.include({labels_[l].free, labels_[l].workers});
    Block& block = blocks_[s / 64];
    block.extent.include(extent);
    block.load = std::min(block.load, loads_.load(state));
    block.sums.weight_bytes = std::min(block.sums.weight_bytes, states_.sums(state).weight_bytes);
    block.sums.stash_bytes = std::min(block.sums.stash_bytes, states_.sums(state).stash_bytes);
    for (size_t t = 0; t < loads_.size(); ++t) {
      promises_[t].state[s] = extent.most_free - loads_[t].load[s] - loads_[t].fixed;
      promises_[t].block[s / 64] = std::max(promises_[t].block[s / 64], promises_[t].state[s]);
    }
    covered_[s / 64] |= uint64_t{1} << (s % 64);
  }

  // A stage from i to j takes at least the load between them in workers, so the promise of j and
  // the load of i together are at least the workers that stay free. Nearer states come first: of
  // equal covers the first found stays.
  void cover(int i) {
    const auto s = static_cast<size_t>(i);
    const double load = loads_.load(i);
    most_free_ = -1;
    begin_ = labels_.size();
    least_free_ = i == 0 ? 0 : std::max(1, static_cast<int>(std::ceil(load - kRounding)));
    least_workers_ = least_free_;
    if (wanted_ == Wanted::Best) {
      least_free_ = front_.end[s];
      least_workers_ = front_.workers[s];
    }
    only_free_counts_ = limits_[s] == units_.top() && !counts_workers_;
    update_least_wanted(limits_[s]);
    // A stage must leave room in the unit that it shares with the one before.
    const double most_replicas =
        limits_[s] == units_.top() ? problem_.workers : units_.size(limits_[s]) - 1;
    nesting_.supersets(i, supersets_);
    const auto likely = static_cast<size_t>(likely_end_[s]);
    if (wanted_ == Wanted::Any && (covered_[likely / 64] >> (likely % 64) & 1) != 0)
      extend(i, likely_end_[s]);
    for (size_t b = s / 64; b < blocks_.size(); ++b) {
      uint64_t left = supersets_[b] & covered_[b];
      if (left == 0) continue;
      const double least = blocks_[b].load - load;
      if (least > most_replicas || hopeless(i, blocks_[b].extent, least_workers(least))) continue;
      if (memory_ > 0 && hopeless(i, blocks_[b].extent,
                                  least_for_memory(i, blocks_[b].sums, 0, blocks_[b].extent,
                                                   least_workers(least))))
        continue;
      const size_t block_tier = loads_.tier_of(least);
      if (promises_[block_tier].block[b] + loads_[block_tier].load[s] + kRounding < wanted_free())
        continue;
      for (; left != 0; left &= left - 1) {
        const size_t j = b * 64 + static_cast<size_t>(std::countr_zero(left));
        const size_t tier = loads_.tier_of(loads_.load(static_cast<int>(j)) - load);
        if (promises_[tier].state[j] + loads_[tier].load[s] + kRounding >= wanted_free())
          extend(i, static_cast<int>(j));
      }
    }
    if (labels_.size() > begin_) likely_end_[s] = labels_[begin_].end;
  }

  // Labels with fewer free workers are of no use.
  int wanted_free() const {
    return only_free_counts_ ? std::max(least_free_, most_free_ + 1) : least_free_;
  }

  void extend(int i, int j) {
    if (single_layers_ && counts_[static_cast<size_t>(j)] != counts_[static_cast<size_t>(i)] + 1)
      return;
    if (j == states_.full() && i == 0 && problem_.at_least_two_stages) return;
    const Extent& extent = extents_[static_cast<size_t>(j)];
    int least = loads_.least_replicas(i, j);
    if (hopeless(i, extent, least)) return;
    if (memory_ > 0) {
      least = least_for_memory(i, states_.sums(j), states_.cut_bytes(j), extent, least);
      if (hopeless(i, extent, least)) return;
    }
    for (size_t l = first_label_[static_cast<size_t>(j)]; l < last_label(j); ++l) {
      const Label label = labels_[l];
      if (hopeless(i, {label.free, label.workers}, least)) continue;
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
      if (problem_.recompute == (recompute ? Recompute::Never : Recompute::Always)) continue;
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

  // Whether all covers of i that begin with a stage of at least `least` replicas, in front of
  // labels of that extent, are beaten.
  bool hopeless(int i, const Extent& extent, int least) const {
    const int free = extent.most_free - least;
    if (free < wanted_free()) return true;
    const int workers = extent.fewest_workers + least;
    if (wanted_ == Wanted::Best && workers + least_workers_ > any_->workers) return true;
    const int kind = limits_[static_cast<size_t>(i)];
    if (kind == units_.top()) {
      return counts_workers_ && std::any_of(labels_.begin() + static_cast<std::ptrdiff_t>(begin_),
                                            labels_.end(), [&](const Label& label) {
                                              return label.free >= free &&
                                                     no_dearer(label, workers);
                                            });
    }
    if (least >= units_.size(kind)) return true;
    if (kind + 1 < units_.top() || units_.size(kind) > kFewRooms) return false;
    return counts_workers_ ? least_wanted(kind, least, workers) > free
                           : least_wanted_[static_cast<size_t>(least)] > free;
  }

  // Whether the label beats all that use so many workers or more, as far as the price goes.
  bool no_dearer(const Label& label, int workers) const {
    return !counts_workers_ || label.workers < workers + (wanted_ == Wanted::Best ? 0 : 1);
  }

  // Where only the room in one kind of unit matters: the least number of free workers that is of
  // use to a cover that begins with a stage of at least `least` replicas and uses at least
  // `workers`.
  int least_wanted(int kind, int least, int workers) const {
    const int size = units_.size(kind);
    int result = INT_MAX;
    for (int room = 1; room <= size - least; ++room) {
      int beaten = wanted_free() - 1;
      for (size_t l = begin_; l < labels_.size(); ++l) {
        if (labels_[l].free > beaten && no_dearer(labels_[l], workers) &&
            units_.before(labels_[l].free, kind) >= room)
          beaten = labels_[l].free;
      }
      const int next = beaten + 1;
      result = std::min(result, next + (room + size - next % size) % size);
    }
    return result;
  }

  void update_least_wanted(int kind) {
    if (counts_workers_ || kind + 1 != units_.top() || units_.size(kind) > kFewRooms) return;
    least_wanted_.resize(static_cast<size_t>(units_.size(kind)));
    for (int least = 1; least < units_.size(kind); ++least)
      least_wanted_[static_cast<size_t>(least)] = least_wanted(kind, least, 0);
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
      int most = end - std::max(lowest, wanted_free());
      if (kind_before < top) most = std::min(most, units_.upto(end, kind_before) - 1);
      if (wanted_ == Wanted::Best)
        most = std::min(most, any_->workers - label.workers - least_workers_);
      if (single_layers_) most = std::min(most, 1);
      if (most < least) {
        if (kind_before == top) break;
        continue;
      }
      const auto [choice, found_kind] = fewest(i, j, label.workers, end, least, most);
      if (choice.replicas == 0) continue;
      best_kind = std::min(best_kind, found_kind);
      offer(i,
            {.free = end - choice.replicas,
             .workers = label.workers + choice.replicas,
             .stages = label.stages + 1,
             .end = j,
             .next = label_index,
             .place_end = end,
             .recompute = choice.recompute,
             .cut_bytes =
                 j == states_.full() ? 0 : saturating_add(label.cut_bytes, states_.cut_bytes(j))});
    }
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

  // Whether whatever can be put before `b` can be put before `a`, at no higher price.
  bool beats(const Label& a, const Label& b, int kind) const {
    if (a.free < b.free) return false;
    if (wanted_ == Wanted::Best ? b.cost() < a.cost() : counts_workers_ && a.workers > b.workers)
      return false;
    for (; kind < units_.top(); ++kind) {
      if (units_.before(a.free, kind) < units_.before(b.free, kind)) return false;
    }
    return true;
  }

  void offer(int i, const Label& label) {
    const int kind = limits_[static_cast<size_t>(i)];
    for (size_t l = begin_; l < labels_.size(); ++l) {
      if (beats(labels_[l], label, kind)) return;
    }
    const auto begin = labels_.begin() + static_cast<std::ptrdiff_t>(begin_);
    labels_.erase(std::remove_if(begin, labels_.end(),
                                 [&](const Label& other) { return beats(label, other, kind); }),
                  labels_.end());
    labels_.push_back(label);
    most_free_ = std::max(most_free_, label.free);
    update_least_wanted(kind);
  }

  Partition partition_of(const Label& first) const {
    Partition partition;
    for (const Label* label = &first; label->end >= 0;
         label = &labels_[static_cast<size_t>(label->next)]) {
      partition.ends.push_back(label->end);
      partition.places.push_back({.first = label->free, .count = label->place_end - label->free});
      partition.recompute.push_back(label->recompute);
    }
    partition.bottleneck_ns = slowest_ns(problem_, partition);
    move_forward(partition);
    return partition;
  }

  // Built from the output end, a partition leaves idle workers in front; where it costs nothing
  // they are better left at the end.
  void move_forward(Partition& partition) const {
    const int spare = partition.places.front().first;
    for (int kind = 0; kind < units_.top(); ++kind) {
      const int shift = spare - units_.before(spare, kind);
      if (shift == 0) return;
      Partition moved = partition;
      for (cluster::WorkerRange& place : moved.places) place.first -= shift;
      moved.bottleneck_ns = slowest_ns(problem_, moved);
      if (moved.bottleneck_ns <= partition.bottleneck_ns) {
        partition = std::move(moved);
        return;
      }
    }
  }

  const PartitionProblem& problem_;
  const CutStates& states_;
  const StageChooser chooser_;
  const Units units_;
  LoadBound loads_;
  const Nesting nesting_;
  const bool single_layers_;
  std::vector<int> counts_;  ///< layers per state, for single layers

  double limit_ns_ = kNoTimeLimit;
  Wanted wanted_ = Wanted::Any;
  double speed_ = 1;
  int64_t memory_ = 0;
  /// Covers with fewer workers are better, not only those that leave more free.
  bool counts_workers_ = false;
  std::optional<Success> any_;  ///< the last one
  FrontBound front_;            ///< while the best is wanted

  std::vector<Label> labels_;
  std::vector<size_t> first_label_;
  /// Per state, the largest unit that the stages on both sides of the cut may span; 0: cannot be
  /// cut.
  std::vector<int> limits_;
  std::vector<int> likely_end_;  ///< per state, where its first stage ended last time
  StateSet covered_;             ///< states with labels
  StateSet supersets_;           ///< of the state being covered
  std::vector<Extent> extents_;  ///< per state with labels
  std::vector<Block> blocks_;
  std::vector<Promises> promises_;  ///< per tier

  // Of the state being covered.
  std::vector<int> least_wanted_;  ///< least_wanted() by the replicas of the stage
  size_t begin_ = 0;
  int most_free_ = -1;
  /// Workers that must stay free for the layers before it, at least.
  int least_free_ = 0;
  int least_workers_ = 0;          ///< workers that those use at least
  bool only_free_counts_ = false;  ///< one label suffices: the one with the most free workers
};

}  // namespace

std::unique_ptr<PartitionSearch> make_label_search(const PartitionProblem& problem) {
  return std::make_unique<LabelSearch>(problem);
}

}  // namespace penstock::planner
