// Is there a partition within a time with one worker per stage and as many stages as workers?
// Internal to the planner.
//
// Problem: stage k runs on worker k alone, devices may differ. Chosen: for straight problems with
// no more workers than layers (with more, every layer is a stage: label_search.h, table_search.h).
// Method: the place of a stage follows from the number of stages after it, so for every cut state a
// bit set tells which numbers of stages can cover the layers after it. What a stage takes is
// remembered from one time to the next.
//
// O(states^2 * workers / 64) for a time, times the kinds of devices.
#pragma once

#include <memory>

#include "penstock/planner/partition/partition_search.h"

namespace penstock::planner {

std::unique_ptr<PartitionSearch> make_straight_search(const PartitionProblem& problem);

}  // namespace penstock::planner
