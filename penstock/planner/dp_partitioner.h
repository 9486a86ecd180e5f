// The best split of a model into a pipeline of replicated stages: the optimum that the dynamic programme of PipeDream defines, found
// without enumerating worker counts.
//
//   const auto best = best_partition({.states = states, .model = *model, .memory = memory, .workers = 16});
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "penstock/planner/cost_model.h"
#include "penstock/planner/cut_states.h"
#include "penstock/planner/memory_model.h"

namespace penstock::planner {

struct PartitionProblem {
  const CutStates& states;
  const CostModel& model;
  MemoryModel memory;
  int workers = 1;
  bool straight = false;             ///< one worker per stage, exactly min(workers, layers) stages
  bool at_least_two_stages = false;  ///< ignored with one worker or one layer
};

/// Stage k holds the layers of state ends[k] that are not in ends[k - 1]; the last end is the full state.
struct Partition {
  std::vector<int> ends;
  std::vector<int> replicas;
  double bottleneck_ns = 0;  ///< the slowest stage or cut, with the problem's micro-batches per step

  int num_workers() const;
  bool operator==(const Partition&) const = default;
};

/// Minimises the slowest stage or cut over all chains of nested cut states and all replica counts, with at most `workers` workers, every
/// stage within the memory limit; empty when nothing fits. Exact under the cost model. Of several optima: the fewest workers, then the
/// fewest stages, then the fewest bytes over all cuts, then the earliest cut states, so the result is deterministic. Pure.
///
/// Source: SOSP 2019, section 3.1: A(j, m) = min over i, m' of max(A(i, m - m'), cut(i), T(i -> j, m')). Differs: solved from the output
/// end, where the depth of a stage (and so its memory) is known; and as a search for the smallest reachable time, where the fewest workers
/// that cover the rest within a time replace the table over m. O(states^2 * log(time range / smallest difference)).
std::optional<Partition> best_partition(const PartitionProblem& problem);

/// The smallest memory limit per worker under which a partition exists, and one that needs no more: what to tell a user whose limit is too
/// low. The problem's own limit is ignored. Empty only when no limit helps.
struct LeastMemory {
  int64_t bytes = 0;
  Partition partition;
};
std::optional<LeastMemory> least_memory(const PartitionProblem& problem);

}  // namespace penstock::planner
