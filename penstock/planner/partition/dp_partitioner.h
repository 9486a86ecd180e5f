// The best split of a model into a pipeline of replicated stages: the optimum that the dynamic
// programme of PipeDream defines, found without enumerating worker counts.
//
//   const auto best = best_partition({.states = states, .model = *model, .memory = memory,
//       .workers = 16});
#pragma once

#include <cstdint>
#include <optional>

#include "penstock/planner/partition.h"

namespace penstock::planner {

/// Minimises the slowest stage or cut over all chains of nested cut states, all replica counts, all
/// placements of the stages on runs of consecutive workers in their order (with gaps, so that a
/// stage may begin where a server does), and, under Choice::Auto, the choice of each stage to
/// recompute, with every stage within the memory limit of its workers; empty when nothing fits. A
/// stage costs what the level that holds its replicas costs, a cut what the level costs that holds
/// the replicas of both stages. On unequal devices a stage is as fast as its slowest worker.
///
/// Exact under the cost model. Of several optima: the fewest workers, then the fewest stages, then
/// the fewest bytes over all cuts; then, and for straight partitions, a fixed rule, so the result
/// is deterministic. Where all workers are used, those of the paper's own dynamic programme
/// (paper_table.h) where that applies and reaches the optimum, otherwise a fixed rule. Pure.
///
/// O(states^2) for each of the O(log) times that are tried, as a rule
/// (docs/lab/planner-appendix.md).
/// Throws ConfigError when `workers` is not between 1 and the cluster's, and, for unequal devices
/// or where all workers must be used, when there are too many states and workers for a table of
/// both.
///
/// Source: SOSP 2019, section 3.1: A(j, m) = min over i, m' of max(A(i, m - m'), cut(i), T(i -> j,
/// m')). Differs: solved from the output end, where the depth of a stage (and so its memory) is
/// known; as a search for the smallest reachable time, where the fewest workers that cover the rest
/// within a time replace the table over m; and over real placements instead of level by level, so
/// that 15-1 on four servers of four is a plan. docs/planner.md has the argument why few placements
/// need to be looked at.
///
/// Where the problem's time runs out, or its budget: the best partition found so far, with
/// Partition::open_ns. Throws SearchEnded when there is none yet.
std::optional<Partition> best_partition(const PartitionProblem& problem);

/// The smallest memory limit per worker under which a partition exists, and one that needs no more:
/// what to tell a user whose limit is too low. The problem's own limit is ignored. Empty only when
/// no limit helps. Throws SearchEnded.
struct LeastMemory {
  int64_t bytes = 0;
  Partition partition;
};
std::optional<LeastMemory> least_memory(const PartitionProblem& problem);

}  // namespace penstock::planner
