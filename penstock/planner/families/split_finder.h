// Finds the best split of a family of plans, and remembers partitions that several families share.
// Internal to the planner.
//
// Problem: of all splits that a kind and policy can run within the memory, the one with the least
// bottleneck. Chosen: for every family with one stage per worker (families.h); chunks.h begins with
// its straight splits. Method: the best partition without a memory limit first (bounded_search.h),
// found once for all kinds; where it does not fit, a search under the limit, bounded by what
// lighter kinds have proven. One to a few such searches per family.
//
//   SplitFinder finder(context);
//   const auto found = finder.best(
//       {.strategy = plan::Strategy::GPipe, .policy = plan::WeightPolicy::Flush, .straight =
//       true});
#pragma once

#include <compare>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "penstock/planner/cuts/cut_space.h"
#include "penstock/planner/families/layer_runs.h"
#include "penstock/planner/partition/bounded_search.h"
#include "penstock/planner/pricing/pricing.h"

namespace penstock::planner {

/// What to look for: a schedule kind and the splits that count as its own.
struct Family {
  plan::Strategy strategy = plan::Strategy::OneFOneB;
  plan::WeightPolicy policy = plan::WeightPolicy::Stash;
  bool straight = false;  ///< one worker per stage
  /// Then it becomes dp or serial, where the policy is the kind's own.
  bool may_be_single_stage = false;
  int64_t slack = 0;  ///< eager-1f1b
  int64_t keep = 0;   ///< as plan::Stage::keep, of all stages
  /// The search counts sums of gradients as if computation hid none of them.
  bool counts_sums = false;
  /// The search counts a boundary's messages as if so many links shared them.
  int links_per_cut = 1;
  /// What each worker may need, where all have the same limit and it is less; 0: the limit.
  int64_t memory_bytes = 0;

  auto operator<=>(const Family&) const = default;
};

/// A single stage is not a pipeline: it runs as plain data parallelism or serially, where the
/// policy allows.
void name_single_stage(Split& split);

struct FoundSplit {
  Split split;
  int64_t micro_batches = 0;  ///< per step; 0: the user's, or chosen for the replicas
  double optimality_gap = 0;  ///< plan::Plan::optimality_gap
  double bottleneck_ns = 0;   ///< as the search counts it; 0: of a single stage
  int64_t needed_bytes = 0;   ///< of the worker that needs most, by the memory model; 0 as well
  /// BoundedPartition::earlier, as far as they fit the memory.
  std::vector<FoundSplit> earlier = {};
};

/// The minimum memory per worker under which the family has a plan, and the plan that needs no
/// more.
struct LeastSplit {
  int64_t bytes = 0;
  Split split;
  std::vector<int64_t> stage_bytes;  ///< what each stage needs
  /// Whether no plan needs less; not known where the cuts are too many to try them all.
  bool proven = true;
};

class SplitFinder {
 public:
  /// Keeps a reference. Throws ConfigError as CutSpace, OutOfMemory.
  explicit SplitFinder(const Context& context);

  /// Nothing when no split fits the memory. Flushed pipelines whose usual step does not fit are
  /// tried with shorter ones.
  std::optional<FoundSplit> best(const Family& family);
  /// The same, and under "penstock" what else may be faster. The cost model sends all messages of a
  /// boundary over one link, forward and back. But links carry both directions at once, and each
  /// replica of a stage may have its own: so also the best splits where 2, 4, 8, ... links share
  /// them, as long as the bottleneck falls. Those of fewer cuts follow, which a shorter time limit
  /// would have found: so more time gives no slower plan. None twice.
  std::vector<FoundSplit> best_over_links(Family family);
  /// No straight split of a kind with a flush has a faster slowest stage, memory left out.
  double least_straight_ns(Family family);
  /// Nothing when it would take more than 2^63 bytes.
  std::optional<LeastSplit> least(const Family& family);
  /// The layers of the best straight split into exactly that many stages, on as many equal workers
  /// joined by the level that holds the cluster's first `workers`; memory left out. Exact over all
  /// cuts where they can be listed. Elsewhere one search, for all workers, gives an order of the
  /// layers, and the split is the best one along it (LayerRuns::cheapest). `stages` is at most the
  /// number of layers.
  const std::vector<std::vector<LayerId>>& straight_stages(int stages, int workers);
  /// Whether some of these had to do with less memory than it asked for.
  bool straight_short_of_memory() const { return straight_short_of_memory_; }
  /// Whether the model is a chain as far as cuts go: one more of them than layers.
  bool is_chain() const {
    return space_.complete() && space_.states()->size() == space_.states()->num_layers() + 1;
  }
  /// Whether a search ended before it was done.
  bool out_of_time() const { return out_of_time_; }
  void note_out_of_time() { out_of_time_ = true; }
  /// How often a search was asked for whose time ended before it was done.
  int64_t num_cut_short() const { return num_cut_short_; }
  /// From now on searches of one family that were cut short go on where they are asked for again.
  void search_again();
  /// Kinds for which a search had to do with less memory than it asked for, in the order of the
  /// table of kinds.
  const std::set<plan::Strategy>& short_of_memory() const { return short_of_memory_; }
  void note_short_of_memory(plan::Strategy strategy) { short_of_memory_.insert(strategy); }

 private:
  using Key = std::tuple<bool, bool, int64_t, bool, int>;

  double slowest_cut_ns() const;
  bool may_shorten_steps(const Family& family) const;
  int64_t search_micro_batches(const Family& family) const;
  MemoryModel memory_model_of(const Family& family, int64_t micro_batches) const;
  PartitionProblem problem_over(const CutStates& states, const cluster::Cluster& cluster,
                                const Family& family, int64_t micro_batches) const;
  std::vector<std::vector<LayerId>> stages_of(const CutStates& states,
                                              const Partition& partition) const;
  const BoundedPartition& best_partition_of(const Family& family, int64_t micro_batches);
  const BoundedPartition* known_limited(Family family, int64_t micro_batches) const;
  const BoundedPartition* known_with_fewer_links(Family family, int64_t micro_batches) const;
  const BoundedPartition* known_lighter(Family family, int64_t micro_batches) const;
  Key unlimited_key(const Family& family, int64_t micro_batches) const;
  const BoundedPartition& unlimited(const Family& family, int64_t micro_batches);
  bool fits(const Family& family, int64_t micro_batches, const CutStates& states,
            const Partition& partition) const;
  std::vector<int64_t> needs_of(const Family& family, int64_t micro_batches,
                                const CutStates& states, const Partition& partition) const;
  /// Beside what the search knows.
  int64_t bytes_of_stage(const std::vector<LayerId>& layers, const StageMemory& memory,
                         int64_t in_flight) const;
  Split split_of(const Family& family, const CutStates& states, const Partition& partition) const;
  Split single_stage(const Family& family) const;
  std::vector<std::vector<LayerId>> searched_stages(int stages, int level);
  std::vector<std::vector<LayerId>> stages_along_order(int stages, int level);
  std::vector<std::vector<LayerId>> stages_of_runs(const LayerRuns& runs, int stages,
                                                   int level) const;
  cluster::Cluster equal_workers(int count, int level) const;

  void keep_ends_alone(BoundedPartition& best) const;
  /// Whose time a search takes.
  enum class For : uint8_t { OneFamily, FamiliesOfSeveralStages, All };
  BoundedPartition searched(For whom, const ProblemOver& problem_over);

  const Context& context_;
  CutSpace space_;
  HeldBytes held_space_;
  bool out_of_time_ = false;
  int64_t num_cut_short_ = 0;
  bool straight_short_of_memory_ = false;
  std::set<plan::Strategy> short_of_memory_;
  bool steps_cost_time_ = false;
  /// By stages and the level that joins them.
  std::map<std::pair<int, int>, std::vector<std::vector<LayerId>>> straight_;
  /// In the order of one straight split, for models with too many cuts to list.
  std::optional<LayerRuns> straight_runs_;
  /// By straight, may be a single stage, micro-batches, counts sums, links per cut.
  std::map<Key, BoundedPartition> unlimited_;
  /// Those that do not fit as they are, by micro-batches.
  std::map<std::pair<Family, int64_t>, BoundedPartition> limited_;
  std::set<std::pair<Family, int64_t>> again_;  ///< of these, what search_again() left to be done
};

}  // namespace penstock::planner
