#include "penstock/planner/pytorch_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/plan/boundaries.h"
#include "penstock/planner/planner.h"
#include "penstock/planner/testing/testing_graphs.h"
#include "penstock/util/error.h"

namespace penstock::planner {
namespace {

using ::testing::HasSubstr;
using testing_graphs::flat_cluster;

/// A chain of layers with these names; each takes as long as the others.
profile::Profile named(const std::vector<std::string>& names) {
  std::vector<graph::LayerNode> nodes;
  profile::Profile profile;
  profile.model = "named";
  profile.batch_size = 8;
  for (size_t l = 0; l < names.size(); ++l) {
    nodes.push_back({.name = names[l],
                     .kind = "test",
                     .inputs = {l == 0 ? graph::ValueRef::model_input(0)
                                       : graph::ValueRef{LayerId{static_cast<int>(l) - 1}, 0}}});
    profile.costs.push_back(
        {.forward_ns = 1'000'000, .backward_ns = 2'000'000, .output_bytes = {1000}});
  }
  const LayerId last{static_cast<int>(names.size()) - 1};
  profile.graph = graph::ModelGraph::build(1, std::move(nodes), {{last, 0}});
  return profile;
}

plan::Plan line_plan(const profile::Profile& profile, int workers,
                     plan::Strategy strategy = plan::Strategy::GPipe) {
  PlanOptions options;
  options.strategy = strategy;
  options.straight = true;
  options.micro_batches = 8;
  return *make_plan(profile, flat_cluster(workers, 1'000'000'000'000), options).plan;
}

PytorchSplit split_of(const profile::Profile& profile, int workers) {
  return pytorch_split(line_plan(profile, workers), profile,
                       flat_cluster(workers, 1'000'000'000'000));
}

TEST(PytorchSplit, KnowsModulesByTheNamesOfLayers) {
  EXPECT_EQ(module_of_layer("layers.7-add_2"), "layers.7");
  EXPECT_EQ(module_of_layer("layers.7.norm"), "layers.7.norm");
  EXPECT_EQ(module_of_layer("forward-add"), "");
}

TEST(PytorchSplit, KeepsCutsBeforeModules) {
  const profile::Profile profile = named({"a", "b", "c", "d"});
  const PytorchSplit split = split_of(profile, 2);
  ASSERT_EQ(split.cuts.size(), 1);
  EXPECT_EQ(split.cuts[0].module, "c");
  EXPECT_EQ(split.cuts[0].moved, 0);
  EXPECT_EQ(split.plan.prediction.throughput_samples_per_s,
            line_plan(profile, 2).prediction.throughput_samples_per_s);
}

TEST(PytorchSplit, MovesOthersToTheNearestModule) {
  // The plan cuts before "block-add"; PyTorch before "block.down", a layer earlier, or before
  // "head", three later.
  const profile::Profile profile =
      named({"block.norm", "block.up", "block.down", "block-add", "block-relu", "block-add_1"});
  const PytorchSplit split = split_of(profile, 2);
  EXPECT_EQ(split.cuts[0].module, "block.down");
  EXPECT_EQ(split.cuts[0].moved, -1);
  EXPECT_EQ(split.plan.stages[0].layers, (std::vector<std::string>{"block.norm", "block.up"}));
  EXPECT_LT(split.plan.prediction.throughput_samples_per_s,
            line_plan(profile, 2).prediction.throughput_samples_per_s);
}

TEST(PytorchSplit, KnowsTheBlockOfAModule) {
  EXPECT_EQ(block_of_module("model.layers.7.attention.query"), "model.layers.7");
  EXPECT_EQ(block_of_module("features.9.block.3"), "features.9.block.3");
  EXPECT_EQ(block_of_module("encoder.encoder_layer_1.mlp"), "encoder.encoder_layer_1");
  EXPECT_EQ(block_of_module("layers.7.norm2"), "layers.7");
  EXPECT_EQ(block_of_module("model.norm"), "model.norm");
}

TEST(PytorchSplit, CutsNotInsideOfABlock) {
  // Before layers.0.v its q and k would cross, which may be transposed.
  const profile::Profile profile =
      named({"layers.0.q", "layers.0.k", "layers.0.v", "layers.1.q", "layers.1.k", "layers.1.v"});
  const plan::Plan free = line_plan(profile, 3);
  PytorchSplit split =
      pytorch_split(line_plan(profile, 2), profile, flat_cluster(2, 1'000'000'000'000));
  EXPECT_EQ(split.cuts[0].module, "layers.1");
  EXPECT_EQ(split.cuts[0].moved, 0);
  EXPECT_THROW(pytorch_split(free, profile, flat_cluster(3, 1'000'000'000'000)), NotForPytorch);
  split = pytorch_split(free, profile, flat_cluster(3, 1'000'000'000'000), "layers.?.[kv]");
  EXPECT_EQ(split.cuts[0].module, "layers.0.v");
  EXPECT_EQ(split.cuts[1].module, "layers.1.k");
}

TEST(PytorchSplit, CutsNotWhereAValueCrossesThatIsNotContiguous) {
  // What "b" makes is read by "c" and "d".
  profile::Profile profile = named({"a", "b", "c", "d", "e", "f"});
  std::vector<graph::LayerNode> nodes = profile.graph.layers();
  nodes[3].inputs.push_back({LayerId{1}, 0});
  profile.graph = graph::ModelGraph::build(1, std::move(nodes), {{LayerId{5}, 0}});
  EXPECT_EQ(split_of(profile, 2).cuts[0].module, "d");
  profile.costs[1].strided_outputs = {0};
  const PytorchSplit split = split_of(profile, 2);
  EXPECT_EQ(split.cuts[0].module, "e");
  EXPECT_EQ(split.cuts[0].moved, 1);
  for (profile::LayerCost& cost : profile.costs) cost.strided_outputs = {0};
  try {
    split_of(profile, 2);
    FAIL();
  } catch (const NotForPytorch& no) {
    EXPECT_THAT(no.what(), HasSubstr("has 0 such places, which is too few for the plan's 2 stages; "
                                     "before 5 more a tensor crosses that is not contiguous"));
  }
}

TEST(PytorchSplit, PatternsStopAtDots) {
  EXPECT_TRUE(matches_module("model.layers.*", "model.layers.12"));
  EXPECT_FALSE(matches_module("model.layers.*", "model.layers.12.mlp"));
  EXPECT_TRUE(matches_module("*.layers.[02]", "model.layers.2"));
  EXPECT_FALSE(matches_module("*.layers.[02]", "model.layers.1"));
}

TEST(PytorchSplit, CutsStagesThatAreNotConsecutiveByTime) {
  // Two branches: a, b, d and a, c; e adds them.
  profile::Profile profile = named({"a", "b", "c", "d", "e"});
  std::vector<graph::LayerNode> nodes = profile.graph.layers();
  nodes[2].inputs = {{LayerId{0}, 0}};
  nodes[3].inputs = {{LayerId{1}, 0}};
  nodes[4].inputs = {{LayerId{2}, 0}, {LayerId{3}, 0}};
  profile.graph = graph::ModelGraph::build(1, std::move(nodes), {{LayerId{4}, 0}});
  plan::Plan plan = line_plan(profile, 2);
  plan.stages[0].layers = {"a", "b", "d"};
  plan.stages[1].layers = {"c", "e"};
  const PytorchSplit split = pytorch_split(plan, profile, flat_cluster(2, 1'000'000'000'000));
  EXPECT_EQ(split.cuts[0].module, "d");
  EXPECT_EQ(split.plan.stages[0].layers, (std::vector<std::string>{"a", "b", "c"}));
}

TEST(PytorchSplit, CutsStayApart) {
  const profile::Profile profile = named({"a", "a-x", "a-y", "b", "c", "c-x"});
  const PytorchSplit split = split_of(profile, 3);
  ASSERT_EQ(split.cuts.size(), 2);
  EXPECT_EQ(split.cuts[0].module, "b");
  EXPECT_EQ(split.cuts[1].module, "c");
}

TEST(PytorchSplit, RefusesWhatPyTorchHasNot) {
  const auto refusal = [](const plan::Plan& plan, const profile::Profile& profile) {
    try {
      pytorch_split(plan, profile, flat_cluster(2, 1'000'000'000'000));
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("nothing was refused");
  };
  const profile::Profile profile = named({"a", "b", "c", "d"});
  EXPECT_THAT(refusal(line_plan(profile, 2, plan::Strategy::OneFOneB), profile),
              HasSubstr("synchronous schedules only"));
  plan::Plan replicated = line_plan(profile, 2);
  replicated.stages[0].replicas = 2;
  EXPECT_THAT(refusal(replicated, profile), HasSubstr("no replicas"));
  plan::Plan coded = line_plan(profile, 2);
  plan::set_boundaries(coded, plan::parse_boundary("int8"));
  EXPECT_THAT(refusal(coded, profile), HasSubstr("this plan's boundaries travel as int8"));
  const profile::Profile whole = named({"a", "a-x", "a-y", "a-z"});
  EXPECT_THAT(refusal(line_plan(whole, 2), whole), HasSubstr("the model has 0 such places"));
}

}  // namespace
}  // namespace penstock::planner
