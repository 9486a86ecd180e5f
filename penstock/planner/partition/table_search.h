// Is there a partition within a time on unequal devices, or with no worker left idle? Internal to
// the planner.
//
// Problem: as label_search.h, where the number of free workers does not decide what fits on them.
// Chosen: for devices of unequal speed or memory, and for problems that use all workers, unless
// straight_search.h solves them. Method: for every cut state and every worker the best cover of the
// layers after the state whose first stage begins at that worker. A stage that may leave a gap
// still takes the fewest replicas from its last worker on: it is no slower for losing a worker that
// it does not need, and what comes before may stay where it is.
//
// O(states^2 * workers * (levels + groups of devices)) for a time; with all workers to be used
// O(states^2 * workers^2). Throws ConfigError where states^2 / 2 * workers is above 2e8.
#pragma once

#include <memory>

#include "penstock/planner/partition/partition_search.h"

namespace penstock::planner {

std::unique_ptr<PartitionSearch> make_table_search(const PartitionProblem& problem);

}  // namespace penstock::planner
