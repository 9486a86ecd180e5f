#include "penstock/planner/partition/make_search.h"

#include "penstock/planner/partition/label_search.h"
#include "penstock/planner/partition/straight_search.h"
#include "penstock/planner/partition/table_search.h"

namespace penstock::planner {

std::unique_ptr<PartitionSearch> make_search(const PartitionProblem& problem) {
  if (problem.straight && !single_layers(problem)) return make_straight_search(problem);
  if ((problem.use_all_workers && !problem.straight) || !problem.cluster.uniform())
    return make_table_search(problem);
  return make_label_search(problem);
}

}  // namespace penstock::planner
