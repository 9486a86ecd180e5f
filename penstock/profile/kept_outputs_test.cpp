#include "penstock/profile/kept_outputs.h"

#include <gtest/gtest.h>

namespace penstock::profile {
namespace {

using graph::ValueRef;
using Kept = std::vector<std::vector<bool>>;

ValueRef output_of(int layer) { return {LayerId{layer}, 0}; }

/// conv, norm, relu, conv: each reads the one before.
graph::ModelGraph block() {
  return graph::ModelGraph::build(1,
                                  {{"conv", "conv2d", {ValueRef::model_input(0)}},
                                   {"norm", "batch_norm2d", {output_of(0)}},
                                   {"relu", "relu", {output_of(1)}},
                                   {"last", "conv2d", {output_of(2)}}},
                                  {output_of(3)});
}

TEST(KeptOutputs, AreThoseThatTheLayerOrAReaderSaves) {
  const graph::ModelGraph graph = block();
  const Kept kept = kept_outputs(graph, {saves_of(graph.layer(LayerId{0}), true, false),
                                         saves_of(graph.layer(LayerId{1}), true, false),
                                         saves_of(graph.layer(LayerId{2}), false, true),
                                         saves_of(graph.layer(LayerId{3}), true, false)});
  EXPECT_EQ(kept, (Kept{{true}, {false}, {true}, {false}}));
}

TEST(KeptInputs, BelongToTheFirstLayerThatSavesThem) {
  const graph::ModelGraph graph =
      graph::ModelGraph::build(2,
                               {{"a", "add", {ValueRef::model_input(0), ValueRef::model_input(1)}},
                                {"b", "linear", {ValueRef::model_input(1)}},
                                {"c", "linear", {ValueRef::model_input(1)}}},
                               {output_of(0), output_of(1), output_of(2)});
  const std::vector<std::vector<int>> kept =
      kept_inputs(graph, {saves_of(graph.layer(LayerId{0}), false, false),
                          saves_of(graph.layer(LayerId{1}), true, false),
                          saves_of(graph.layer(LayerId{2}), true, false)});
  EXPECT_EQ(kept, (std::vector<std::vector<int>>{{}, {1}, {}}));
}

TEST(KeptOutputs, AViewThatIsSavedKeepsTheValueBehindIt) {
  const graph::ModelGraph graph =
      graph::ModelGraph::build(1,
                               {{"pool", "max_pool2d", {ValueRef::model_input(0)}},
                                {"flatten", "flatten", {output_of(0)}},
                                {"again", "flatten", {output_of(1)}},
                                {"linear", "linear", {output_of(2)}}},
                               {output_of(3)});
  const Kept kept =
      kept_outputs(graph, {saves_of(graph.layer(LayerId{0}), false, false),
                           saves_of(graph.layer(LayerId{1}), false, false, /*is_view=*/true),
                           saves_of(graph.layer(LayerId{2}), false, false, /*is_view=*/true),
                           saves_of(graph.layer(LayerId{3}), true, false)});
  EXPECT_EQ(kept, (Kept{{true}, {true}, {true}, {false}}));
}

TEST(KeptOutputs, ValuesThatNobodySavesAreFreed) {
  const graph::ModelGraph graph =
      graph::ModelGraph::build(1,
                               {{"a", "add", {ValueRef::model_input(0), ValueRef::model_input(0)}},
                                {"b", "add", {output_of(0), output_of(0)}}},
                               {output_of(1)});
  const LayerSaves none = saves_of(graph.layer(LayerId{0}), false, false);
  EXPECT_EQ(kept_outputs(graph, {none, none}), (Kept{{false}, {false}}));
}

}  // namespace
}  // namespace penstock::profile
