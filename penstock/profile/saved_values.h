// Which values layers keep from the forward to the backward pass. An operation saves what its
// gradient needs: a convolution its input, a ReLU its output, an addition nothing. A value that no
// operation saves is freed as soon as its readers have run.
//
//   std::vector<LayerSaves> saves = ...;  // one per layer
//   for (const graph::ValueRef& value : saved_inputs(graph, saves)[layer])
//     stash_bytes += bytes_of(value);
#pragma once

#include <string_view>
#include <vector>

#include "penstock/graph/model_graph.h"

namespace penstock::profile {

/// Profile::source of PipeDream's graph.txt, which has no memory: what its layers save is guessed.
inline constexpr std::string_view kGraphFile = "pipedream graph.txt";

/// What the gradients of one layer need of its values.
struct LayerSaves {
  std::vector<bool> inputs;   ///< per input of the node
  std::vector<bool> outputs;  ///< per output
  /// Per output: the input whose memory it shares, or -1.
  std::vector<int> view_of = {};
};

/// The same for all inputs and outputs of a layer.
LayerSaves saves_of(const graph::LayerNode& layer, bool inputs, bool outputs, bool is_view = false);

/// Per layer, the values that it reads and saves, but for those that their makers save themselves
/// or that a layer before it saves: so each value counts once, where it is saved first. Model
/// inputs are among them; a view stands for the value behind it. `saves`: one per layer of the
/// graph. O(edges log edges).
std::vector<std::vector<graph::ValueRef>> saved_inputs(const graph::ModelGraph& graph,
                                                       const std::vector<LayerSaves>& saves);

}  // namespace penstock::profile
