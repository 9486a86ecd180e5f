// Is there a partition within a time, on equal devices? Internal to the planner.
//
// Problem: stages of any replicas on runs of consecutive equal workers, with gaps, each within the
// time and the memory limit, each cut within the time at the level that joins both its stages.
// Chosen: for all problems but those of straight_search.h and table_search.h. Method: for every cut
// state, from the output end, the covers of the layers after it that no other cover beats
// ("labels"): how many workers in front stay free, and what the cover costs.
// docs/lab/planner-appendix.md says why a label need only try a stage at its free end and at the
// ends of the units before it, and when one label beats another.
//
// O(states^2 * labels * levels) for a time at worst; bounds leave a few states for each as a rule.
// Labels per state: one on a flat cluster where neither memory nor ties matter, else a few.
#pragma once

#include <memory>

#include "penstock/planner/partition/partition_search.h"

namespace penstock::planner {

std::unique_ptr<PartitionSearch> make_label_search(const PartitionProblem& problem);

}  // namespace penstock::planner
