// Which search answers a problem. Internal to the planner.
#pragma once

#include <memory>

#include "penstock/planner/partition/partition_search.h"

namespace penstock::planner {

/// The search that suits the problem: straight_search.h, table_search.h or label_search.h. The
/// problem must outlive it. Throws ConfigError when the problem is too large for a
/// search that has no short cut.
std::unique_ptr<PartitionSearch> make_search(const PartitionProblem& problem);

}  // namespace penstock::planner
