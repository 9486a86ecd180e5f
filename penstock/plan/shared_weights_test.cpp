#include "penstock/plan/shared_weights.h"

#include <gtest/gtest.h>

namespace penstock::plan {
namespace {

TEST(SharedWeights, OnlyThoseOfDifferentStagesCount) {
  const graph::ModelGraph graph =
      graph::ModelGraph::build(1,
                               {{"a", "linear", {graph::ValueRef::model_input(0)}, 1},
                                {"b", "linear", {{LayerId{0}, 0}}, 1, {{0, {LayerId{0}, 0}}}},
                                {"c", "linear", {{LayerId{1}, 0}}, 1}},
                               {{LayerId{2}, 0}});
  const auto plan_of = [](const std::vector<std::vector<std::string>>& stages) {
    Plan plan;
    for (const auto& layers : stages) {
      plan.stages.emplace_back();
      plan.stages.back().layers = layers;
    }
    return plan;
  };
  EXPECT_FALSE(stages_share_weights(plan_of({{"a", "b", "c"}}), graph));
  EXPECT_FALSE(stages_share_weights(plan_of({{"a", "b"}, {"c"}}), graph));
  EXPECT_TRUE(stages_share_weights(plan_of({{"a"}, {"b", "c"}}), graph));
}

}  // namespace
}  // namespace penstock::plan
