#include "penstock/plan/shared_weights.h"

#include <algorithm>

namespace penstock::plan {

bool stages_share_weights(const Plan& plan, const graph::ModelGraph& graph) {
  const std::vector<StageId> stages = stage_of_layer(plan, graph);
  const std::vector<graph::TieGroup> groups = graph::tie_groups(graph);
  return std::any_of(groups.begin(), groups.end(), [&](const graph::TieGroup& uses) {
    return std::any_of(uses.begin(), uses.end(), [&](const graph::ParameterRef& use) {
      return stages[use.layer.index()] != stages[uses.front().layer.index()];
    });
  });
}

}  // namespace penstock::plan
