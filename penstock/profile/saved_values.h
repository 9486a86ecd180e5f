// Which values layers keep from the forward to the backward pass. An operation saves what its
// gradient needs: a convolution its input, a ReLU its output, an addition nothing. A value that no
// operation saves is freed as soon as its readers have run.
//
//   std::vector<LayerSaves> saves = ...;  // one per layer
//   std::vector<int64_t> bytes = saved_bytes(graph, saves, [&](const ValueRef& value) { ... });
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "penstock/graph/model_graph.h"

namespace penstock::profile {

/// What the gradients of one layer need of its values.
struct LayerSaves {
  std::vector<bool> inputs;   ///< per input of the node
  std::vector<bool> outputs;  ///< per output; not of views
  /// Per output: the input whose memory it shares, or -1.
  std::vector<int> view_of = {};

  bool operator==(const LayerSaves&) const = default;
};

/// The same for all inputs and outputs of a layer.
LayerSaves saves_of(const graph::LayerNode& layer, bool inputs, bool outputs, bool is_view = false);

/// Per layer, the bytes of what it saves of its inputs and outputs, but for inputs that their
/// makers or layers before it save: so each value counts once, where it is saved first. A view
/// stands for the value behind it. `saves`: one per layer of the graph; `bytes_of` knows outputs of
/// layers and inputs of the model. Saturates. O(edges log edges).
std::vector<int64_t> saved_bytes(const graph::ModelGraph& graph,
                                 const std::vector<LayerSaves>& saves,
                                 const std::function<int64_t(const graph::ValueRef&)>& bytes_of);

/// Per layer and input, what saved_bytes() counts the input with where the layer saves it: a layer
/// before it, or itself. Nothing where it saves none, and for inputs of the model. So a stage that
/// has the layer, but not the one that counts, keeps bytes of which that one knows nothing.
std::vector<std::vector<std::optional<LayerId>>> counting_layers(
    const graph::ModelGraph& graph, const std::vector<LayerSaves>& saves);

}  // namespace penstock::profile
