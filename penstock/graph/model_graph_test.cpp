#include "penstock/graph/model_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>

#include "penstock/util/error.h"
#include "tests/support/mutate.h"

namespace penstock::graph {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ValueRef of(int layer, int output = 0) { return {LayerId{layer}, output}; }
const ValueRef kInput = ValueRef::model_input(0);

std::string refusal(int num_inputs, std::vector<LayerNode> layers,
                    std::vector<ValueRef> outputs = {}) {
  return tests::message_of<ConfigError>(
      [&] { ModelGraph::build(num_inputs, std::move(layers), std::move(outputs)); });
}

std::vector<std::string> names(const ModelGraph& graph) {
  std::vector<std::string> result;
  for (const LayerNode& layer : graph.layers()) result.push_back(layer.name);
  return result;
}

/// in -> a -> b -> d, a -> c -> d: a branch that is joined again; b has two outputs.
ModelGraph diamond() {
  return ModelGraph::build(1,
                           {{"a", "conv2d", {kInput}, 1},
                            {"b", "split", {of(0)}, 2},
                            {"c", "linear", {of(0)}, 1},
                            {"d", "add", {of(1, 1), of(2), of(1, 0)}, 1}},
                           {of(3)});
}

TEST(ModelGraph, KnowsPredecessorsAndSuccessorsOnceEach) {
  const ModelGraph graph = diamond();
  EXPECT_EQ(graph.num_layers(), 4);
  EXPECT_EQ(graph.num_inputs(), 1);
  EXPECT_THAT(graph.successors(LayerId{0}), ElementsAre(LayerId{1}, LayerId{2}));
  EXPECT_THAT(graph.predecessors(LayerId{3}), ElementsAre(LayerId{1}, LayerId{2}));
  EXPECT_THAT(graph.predecessors(LayerId{0}), IsEmpty());
  EXPECT_THAT(graph.successors(LayerId{3}), IsEmpty());
  EXPECT_EQ(graph.layer(LayerId{3}).inputs, (std::vector<ValueRef>{of(1, 1), of(2), of(1, 0)}));
}

TEST(ModelGraph, KeepsAnOrderThatIsTopological) {
  EXPECT_THAT(names(diamond()), ElementsAre("a", "b", "c", "d"));
}

TEST(ModelGraph, PutsLayersIntoTopologicalOrderAndRenumbersReferences) {
  const ModelGraph graph = ModelGraph::build(
      1,
      {{"c", "", {of(1)}, 1}, {"b", "", {of(2)}, 1}, {"a", "", {kInput}, 1}, {"x", "", {of(0)}, 1}},
      {of(0), of(3)});
  EXPECT_THAT(names(graph), ElementsAre("a", "b", "c", "x"));
  EXPECT_THAT(graph.layer(LayerId{2}).inputs, ElementsAre(of(1)));
  EXPECT_THAT(graph.outputs(), ElementsAre(of(2), of(3)));
}

TEST(ModelGraph, FindsLayersByName) {
  EXPECT_EQ(diamond().find("c"), LayerId{2});
  EXPECT_THAT(tests::message_of<ConfigError>([] { diamond().find("q"); }), HasSubstr("'q'"));
}

TEST(ModelGraph, MayBeEmptyAndMayHaveLayersWithoutInputs) {
  EXPECT_EQ(ModelGraph::build(0, {}, {}), ModelGraph());
  EXPECT_EQ(ModelGraph::build(0, {{"constant", "", {}, 1}}, {of(0)}).num_layers(), 1);
}

TEST(ModelGraph, ReportsTheLayersOnACycleInTheDirectionOfTheData) {
  const auto message = refusal(1, {{"in", "", {kInput}, 1},
                                   {"a", "", {of(0), of(3)}, 1},
                                   {"b", "", {of(1)}, 1},
                                   {"c", "", {of(2)}, 1}});
  EXPECT_THAT(message, HasSubstr("cycle: a -> b -> c -> a"));
  EXPECT_THAT(message, Not(HasSubstr("in ->")));
  EXPECT_THAT(refusal(0, {{"self", "", {of(0)}, 1}}), HasSubstr("self -> self"));
}

TEST(ModelGraph, ShortensTheReportOfALongCycle) {
  std::vector<LayerNode> layers;
  for (int i = 0; i < 10'000; ++i)
    layers.push_back({"n" + std::to_string(i), "", {of((i + 9'999) % 10'000)}, 1});
  EXPECT_THAT(refusal(0, layers), AllOf(HasSubstr("n0 -> n1 -> "), HasSubstr("9980 more -> n0")));
}

TEST(ModelGraph, RefusesBadAndDuplicateNames) {
  EXPECT_THAT(refusal(1, {{"a", "", {kInput}, 1}, {"a", "", {kInput}, 1}}), HasSubstr("'a'"));
  for (const std::string& name : {std::string(), std::string("a b"), std::string("a/b"),
                                  std::string("\xc3\xa9"), std::string("@0"), std::string("a\0", 2),
                                  std::string(201, 'a'), std::string(1'000'000, 'a')}) {
    const std::string message = refusal(1, {{name, "", {kInput}, 1}});
    EXPECT_THAT(message, HasSubstr("expected a name"));
    EXPECT_LT(message.size(), 300U);
  }
  EXPECT_EQ(
      ModelGraph::build(
          1, {{"block.1_conv-2", "", {kInput}, 1}, {std::string(200, 'a'), "", {kInput}, 1}}, {})
          .num_layers(),
      2);
}

TEST(ModelGraph, RefusesReferencesToWhatDoesNotExist) {
  EXPECT_THAT(refusal(1, {{"a", "", {of(7)}, 1}}), AllOf(HasSubstr("layer 'a'"), HasSubstr("7")));
  EXPECT_THAT(refusal(1, {{"a", "", {kInput}, 2}, {"b", "", {of(0, 2)}, 1}}),
              AllOf(HasSubstr("layer 'b'"), HasSubstr("output 2 of layer 'a'")));
  EXPECT_THAT(refusal(1, {{"a", "", {of(0, -1)}, 1}}), HasSubstr("output -1"));
  EXPECT_THAT(refusal(1, {{"a", "", {ValueRef::model_input(1)}, 1}}), HasSubstr("model input 1"));
  EXPECT_THAT(refusal(1, {{"a", "", {{LayerId{-2}, 0}}, 1}}), HasSubstr("model input"));
  EXPECT_THAT(refusal(1, {{"a", "", {kInput}, 1}}, {of(1)}), HasSubstr("list of outputs"));
  EXPECT_THAT(refusal(1, {{"a", "", {kInput}, 0}}), HasSubstr("at least 1 output"));
  EXPECT_THAT(refusal(-1, {}), HasSubstr("-1"));
}

TEST(ModelGraph, TakesALongChainInReverseWithoutRecursion) {
  constexpr int kLayers = 200'000;
  std::vector<LayerNode> layers;
  for (int i = 0; i < kLayers; ++i)
    layers.push_back({"n" + std::to_string(i), "", {i + 1 < kLayers ? of(i + 1) : kInput}, 1});
  const ModelGraph graph = ModelGraph::build(1, std::move(layers), {of(0)});
  EXPECT_EQ(graph.layers().front().name, "n199999");
  EXPECT_EQ(graph.outputs().front(), of(kLayers - 1));
}

TEST(ModelGraph, TiesFollowTheirLayersIntoTopologicalOrder) {
  // Listed backwards: "b" borrows from "a", "c" from "a" as well, and has a weight of its own
  // before it.
  const ModelGraph graph = ModelGraph::build(1,
                                             {{"c", "", {of(1)}, 1, {{1, {LayerId{2}, 0}}}},
                                              {"b", "", {of(2)}, 1, {{0, {LayerId{2}, 0}}}},
                                              {"a", "", {kInput}, 1}},
                                             {of(0)});
  const ParameterRef owner{LayerId{0}, 0};
  EXPECT_EQ(graph.owner({LayerId{1}, 0}), owner);
  EXPECT_EQ(graph.owner({LayerId{2}, 1}), owner);
  EXPECT_EQ(graph.owner({LayerId{2}, 0}), (ParameterRef{LayerId{2}, 0}));
  EXPECT_THAT(tie_groups(graph), ElementsAre(TieGroup{owner, {LayerId{1}, 0}, {LayerId{2}, 1}}));
  EXPECT_THAT(tie_groups(diamond()), IsEmpty());
}

TEST(ModelGraph, RefusesTiesThatAreNone) {
  const auto tied = [](std::vector<WeightTie> ties) {
    return refusal(1, {{"a", "", {kInput}, 1},
                       {"b", "", {of(0)}, 1, {{0, {LayerId{0}, 0}}}},
                       {"c", "", {of(1)}, 1, std::move(ties)}});
  };
  EXPECT_THAT(tied({{0, {LayerId{2}, 0}}}), HasSubstr("does not come before it"));
  EXPECT_THAT(tied({{0, {LayerId{7}, 0}}}), HasSubstr("layer number 7"));
  EXPECT_THAT(tied({{0, {LayerId{-1}, 0}}}), HasSubstr("layer number -1"));
  EXPECT_THAT(tied({{0, {LayerId{1}, 0}}}), AllOf(HasSubstr("tied itself"), HasSubstr("'a'")));
  EXPECT_THAT(tied({{0, {LayerId{0}, 0}}, {0, {LayerId{0}, 1}}}), HasSubstr("each once"));
  EXPECT_THAT(tied({{-1, {LayerId{0}, 0}}}), HasSubstr("at least 0"));
  EXPECT_THAT(tied(std::vector<WeightTie>(1001)), HasSubstr("1001"));
}

TEST(ModelGraph, RefusesMoreThanAMillionLayers) {
  EXPECT_THAT(refusal(0, std::vector<LayerNode>(1'000'001)), HasSubstr("1000001"));
}

TEST(CrossingValues, ListsEachValueOncePerConsumerStage) {
  const std::vector<StageId> stages = {StageId{0}, StageId{0}, StageId{1}, StageId{2}};
  EXPECT_THAT(crossing_values(diamond(), stages),
              ElementsAre(CrossingValue{of(0), StageId{0}, StageId{1}},
                          CrossingValue{of(1, 0), StageId{0}, StageId{2}},
                          CrossingValue{of(1, 1), StageId{0}, StageId{2}},
                          CrossingValue{of(2), StageId{1}, StageId{2}}));
}

TEST(CrossingValues, CountsTwoReadersInOneStageOnce) {
  const std::vector<StageId> stages = {StageId{0}, StageId{1}, StageId{1}, StageId{1}};
  EXPECT_THAT(crossing_values(diamond(), stages),
              ElementsAre(CrossingValue{of(0), StageId{0}, StageId{1}}));
  EXPECT_THAT(crossing_values(diamond(), std::vector<StageId>(4)), IsEmpty());
}

TEST(CrossingValues, RefusesBackwardEdgesAndAWrongNumberOfStages) {
  EXPECT_THROW(crossing_values(diamond(), {StageId{1}, StageId{0}, StageId{1}, StageId{1}}),
               ConfigError);
  EXPECT_THROW(crossing_values(diamond(), {StageId{0}}), ConfigError);
}

/// A random graph listed in random order: layer i of a hidden order reads only earlier ones.
std::vector<LayerNode> shuffled_layers(Rng& rng, int count) {
  std::vector<int> position(static_cast<size_t>(count));
  std::iota(position.begin(), position.end(), 0);
  rng.shuffle<int>(position);
  std::vector<LayerNode> layers(position.size());
  for (size_t i = 0; i < position.size(); ++i) {
    LayerNode& layer = layers[static_cast<size_t>(position[i])];
    layer = {"n" + std::to_string(i), "k", {kInput}, 2};
    for (uint64_t k = rng.below(4); k > 0 && i > 0; --k)
      layer.inputs.push_back(of(position[rng.below(i)], static_cast<int>(rng.below(2))));
  }
  return layers;
}

RC_GTEST_PROP(ModelGraph, OrderIsTopologicalCompleteAndStable, (uint64_t seed)) {
  Rng rng(seed);
  const std::vector<LayerNode> listed = shuffled_layers(rng, static_cast<int>(1 + rng.below(30)));
  const ModelGraph graph = ModelGraph::build(1, listed, {of(0, 1)});
  RC_ASSERT(graph.layers().size() == listed.size());
  RC_ASSERT(graph.layer(graph.outputs()[0].layer).name == listed[0].name);
  for (const LayerNode& before : listed) {
    const LayerId id = graph.find(before.name);
    const LayerNode& after = graph.layer(id);
    RC_ASSERT(after.inputs.size() == before.inputs.size());
    for (size_t i = 0; i < after.inputs.size(); ++i) {
      if (after.inputs[i].is_model_input()) continue;
      RC_ASSERT(after.inputs[i].layer < id);
      RC_ASSERT(graph.layer(after.inputs[i].layer).name ==
                listed[before.inputs[i].layer.index()].name);
      const auto& readers = graph.successors(after.inputs[i].layer);
      RC_ASSERT(std::is_sorted(readers.begin(), readers.end()));
      RC_ASSERT(std::count(readers.begin(), readers.end(), id) == 1);
    }
  }
  RC_ASSERT(ModelGraph::build(1, graph.layers(), graph.outputs()) == graph);
}

}  // namespace
}  // namespace penstock::graph
