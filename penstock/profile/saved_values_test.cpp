#include "penstock/profile/saved_values.h"

#include <gtest/gtest.h>

namespace penstock::profile {
namespace {

using graph::ValueRef;
using Saved = std::vector<std::vector<ValueRef>>;

ValueRef output_of(int layer) { return {LayerId{layer}, 0}; }

TEST(SavedInputs, CountOnceUnlessTheirMakerSavesThem) {
  // Each layer reads the one before.
  const graph::ModelGraph graph =
      graph::ModelGraph::build(1,
                               {{"conv", "conv2d", {ValueRef::model_input(0)}},
                                {"norm", "batch_norm2d", {output_of(0)}},
                                {"relu", "relu", {output_of(1)}},
                                {"last", "conv2d", {output_of(2)}}},
                               {output_of(3)});
  const Saved saved = saved_inputs(graph, {saves_of(graph.layer(LayerId{0}), true, false),
                                           saves_of(graph.layer(LayerId{1}), true, false),
                                           saves_of(graph.layer(LayerId{2}), false, true),
                                           saves_of(graph.layer(LayerId{3}), true, false)});
  EXPECT_EQ(saved, (Saved{{ValueRef::model_input(0)}, {output_of(0)}, {}, {}}));
}

TEST(SavedInputs, AViewStandsForTheValueBehindIt) {
  const graph::ModelGraph graph =
      graph::ModelGraph::build(1,
                               {{"pool", "max_pool2d", {ValueRef::model_input(0)}},
                                {"flatten", "flatten", {output_of(0)}},
                                {"again", "flatten", {output_of(1)}},
                                {"linear", "linear", {output_of(2)}}},
                               {output_of(3)});
  const Saved saved =
      saved_inputs(graph, {saves_of(graph.layer(LayerId{0}), false, false),
                           saves_of(graph.layer(LayerId{1}), false, false, /*is_view=*/true),
                           saves_of(graph.layer(LayerId{2}), false, false, /*is_view=*/true),
                           saves_of(graph.layer(LayerId{3}), true, false)});
  EXPECT_EQ(saved, (Saved{{}, {}, {}, {output_of(0)}}));
}

TEST(SavedInputs, BelongToTheFirstLayerThatSavesThem) {
  const graph::ModelGraph graph =
      graph::ModelGraph::build(2,
                               {{"a", "add", {ValueRef::model_input(0), ValueRef::model_input(1)}},
                                {"b", "linear", {ValueRef::model_input(1)}},
                                {"c", "linear", {ValueRef::model_input(1)}}},
                               {output_of(0), output_of(1), output_of(2)});
  const Saved saved = saved_inputs(graph, {saves_of(graph.layer(LayerId{0}), false, false),
                                           saves_of(graph.layer(LayerId{1}), true, false),
                                           saves_of(graph.layer(LayerId{2}), true, false)});
  EXPECT_EQ(saved, (Saved{{}, {ValueRef::model_input(1)}, {}}));
}

}  // namespace
}  // namespace penstock::profile
