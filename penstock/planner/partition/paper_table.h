// The dynamic programme as SOSP 2019 prints it, all workers used. Internal to the planner.
//
// Chosen: where all workers must be used and it reaches the optimum, so that ties are settled as in
// the paper (dp_partitioner.cpp).
#pragma once

#include <optional>

#include "penstock/planner/partition.h"

namespace penstock::planner {

/// A(j, m) = min over i < j and m' < m of max(A(i, m - m'), cut(i), T(i -> j, m')), or T(0 -> j,
/// m): stages in order on the first m workers. Of several choices with the same A the one with the
/// latest cut i, then the fewest replicas m'; a stage is only cut where that is faster. So each
/// beginning of the model is covered as fast as it can be with its workers, even where a later part
/// sets the pace.
///
/// Nothing where the table does not apply: several levels or unequal devices (the time would depend
/// on the places), memory limits, recomputation, straight partitions; or where it would be large:
/// O(states^2 workers^2), at most kMostTableSteps.
std::optional<Partition> paper_partition(const PartitionProblem& problem);

inline constexpr double kMostTableSteps = 5e7;

}  // namespace penstock::planner
