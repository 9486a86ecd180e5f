// The best partition of models whose cuts are too many to be tried all, with a proof of how good it
// is.
//
//   const CutSpace space(graph, layers);
//   const auto problem_over = [&](const CutStates& states) {
//     return PartitionProblem{.states = states, .model = *model, ...};
//   };
//   const BoundedPartition best = best_partition(space, problem_over);
//   if (best.partition) fmt::print("{} ns, the optimum is at most {} of it less\n",
//       best.partition->bottleneck_ns, best.gap());
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "penstock/planner/cuts/cut_space.h"
#include "penstock/planner/partition/dp_partitioner.h"

namespace penstock::planner {

/// The same problem over given cut states of the space's model.
using ProblemOver = std::function<PartitionProblem(const CutStates&)>;

struct FoundPartition {
  std::shared_ptr<const CutStates> states;  ///< those of `partition`
  Partition partition;
  bool on_the_way = false;  ///< the same search found a better one, not a search over more cuts
};

struct BoundedPartition {
  /// Those of `partition`; not all of the model's, in general.
  std::shared_ptr<const CutStates> states;
  std::optional<Partition> partition;
  /// What the search found before, with bottlenecks no shorter: what a shorter time limit finds. A
  /// longer bottleneck may be faster, simulated.
  std::vector<FoundPartition> earlier;
  double lower_bound_ns = 0;  ///< no partition has a smaller bottleneck
  /// With a partition: its bottleneck is the least there is. Without: there is none. Otherwise one
  /// was found that may not be the best, or none was found although there may be one.
  bool proven = false;
  bool out_of_time = false;  ///< the problem's time ended the search
  /// The problem's budget of memory cut it short: with more, the partition may be better.
  bool out_of_memory = false;

  /// The share of the bottleneck by which it may exceed the optimum; 0 when proven.
  double gap() const;
};

/// The states of the partition's ends alone; it refers to these from now on.
std::shared_ptr<const CutStates> ends_alone(const CutSpace& space, const CutStates& states,
                                            Partition& partition);

/// As best_partition of dp_partitioner.h over all downsets of the model, where they are few. Where
/// they are many:
///
/// 1. The best partition over a selection of cuts gives an upper bound of the bottleneck, the
/// depths
///    of cheap cuts a lower one. Only some cuts can be part of a better partition (UsableCuts). If
///    they can all be listed, the best partition over them is the optimum, with the same ties.
/// 2. Otherwise the selection is renewed around the best partition as long as that finds a better
///    one, a few times at most.
///
/// Where the problem's time or budget of memory runs out, the best partition found by then;
/// selections of few cuts come first, so that there is one. Without a time limit nothing depends on
/// a clock. Throws as CutStates and dp_partitioner.h's best_partition. Pure. docs/planner.md has
/// the conditions and limits.
BoundedPartition best_partition(const CutSpace& space, const ProblemOver& problem_over);

}  // namespace penstock::planner
