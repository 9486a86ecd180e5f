#include "penstock/profile/saved_values.h"

#include <gtest/gtest.h>

#include <tuple>

namespace penstock::profile {
namespace {

using graph::ValueRef;
using Bytes = std::vector<int64_t>;

struct Saving {
  std::string kind;
  bool inputs;
  bool outputs;
  bool is_view = false;
};

/// Input k of the model has 1000 (k + 1) bytes, the output of layer l 10^l.
int64_t bytes_of(const ValueRef& value) {
  if (value.is_model_input()) return 1000 * (value.output + 1);
  int64_t bytes = 1;
  for (int l = 0; l < value.layer.value; ++l) bytes *= 10;
  return bytes;
}

Bytes bytes_saved(const graph::ModelGraph& graph, const std::vector<Saving>& layers) {
  std::vector<LayerSaves> saves;
  for (size_t l = 0; l < layers.size(); ++l)
    saves.push_back(
        saves_of(graph.layers()[l], layers[l].inputs, layers[l].outputs, layers[l].is_view));
  return saved_bytes(graph, saves, bytes_of);
}

/// Each layer reads the one before.
Bytes bytes_saved_by_chain(const std::vector<Saving>& layers) {
  std::vector<graph::LayerNode> nodes;
  for (const Saving& layer : layers) {
    const auto before = static_cast<int32_t>(nodes.size()) - 1;
    nodes.push_back({"layer" + std::to_string(nodes.size()),
                     layer.kind,
                     {before < 0 ? ValueRef::model_input(0) : ValueRef{LayerId{before}, 0}}});
  }
  const ValueRef result{LayerId{static_cast<int32_t>(nodes.size()) - 1}, 0};
  return bytes_saved(graph::ModelGraph::build(1, std::move(nodes), {result}), layers);
}

TEST(SavedBytes, CountAValueOnceWhereItIsSavedFirst) {
  EXPECT_EQ(bytes_saved_by_chain({{"conv2d", true, false},
                                  {"batch_norm2d", true, false},
                                  {"relu", false, true},
                                  {"conv2d", true, false}}),
            (Bytes{1000, 1, 100, 0}));
}

TEST(SavedBytes, AViewStandsForTheValueBehindIt) {
  EXPECT_EQ(bytes_saved_by_chain({{"max_pool2d", false, false},
                                  {"flatten", false, false, /*is_view=*/true},
                                  {"flatten", false, false, /*is_view=*/true},
                                  {"linear", true, false}}),
            (Bytes{0, 0, 0, 1}));
}

TEST(SavedBytes, AnInputOfTheModelCountsAtTheFirstLayerThatSavesIt) {
  const ValueRef first = ValueRef::model_input(0);
  const ValueRef second = ValueRef::model_input(1);
  const graph::ModelGraph graph = graph::ModelGraph::build(
      2, {{"a", "add", {first, second}}, {"b", "linear", {second}}, {"c", "linear", {second}}},
      {{LayerId{0}, 0}, {LayerId{1}, 0}, {LayerId{2}, 0}});
  EXPECT_EQ(
      bytes_saved(graph, {{"add", false, false}, {"linear", true, false}, {"linear", true, false}}),
      (Bytes{0, 2000, 0}));
}

TEST(CountingLayers, ALayerKnowsWhoCountsWhatItSaves) {
  const ValueRef input = ValueRef::model_input(0);
  const auto output = [](int layer) { return ValueRef{LayerId{layer}, 0}; };
  const graph::ModelGraph graph = graph::ModelGraph::build(1,
                                                           {{"conv", "conv2d", {input}},
                                                            {"relu", "relu", {output(0)}},
                                                            {"flat", "flatten", {output(1)}},
                                                            {"a", "linear", {output(2)}},
                                                            {"norm", "norm", {output(3)}},
                                                            {"b", "linear", {output(3)}},
                                                            {"c", "add", {output(4), output(5)}}},
                                                           {output(6)});
  std::vector<LayerSaves> saves;
  for (const auto& [inputs, outputs, is_view] : {std::tuple(true, false, false),
                                                 {false, true, false},
                                                 {false, false, true},
                                                 {true, false, false},
                                                 {true, false, false},
                                                 {true, false, false},
                                                 {false, false, false}})
    saves.push_back(saves_of(graph.layers()[saves.size()], inputs, outputs, is_view));
  using Counted = std::vector<std::optional<LayerId>>;
  const LayerId relu{1};
  const LayerId norm{4};
  EXPECT_EQ(counting_layers(graph, saves), (std::vector<Counted>{{std::nullopt},
                                                                 {std::nullopt},
                                                                 {std::nullopt},
                                                                 {relu},
                                                                 {norm},
                                                                 {norm},
                                                                 {std::nullopt, std::nullopt}}));
}

}  // namespace
}  // namespace penstock::profile
