// Which of a model's values live from the forward to the backward pass. An operation saves what its
// gradient needs: a convolution its input, a ReLU its output, an addition nothing. A value that no
// operation saves is freed as soon as its readers have run.
//
//   std::vector<LayerSaves> saves = ...;  // one per layer
//   if (!kept_outputs(graph, saves)[layer][0]) stash_bytes -= output_bytes[0];
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

/// [layer][output]: whether the layer or any reader saves it, or a view of it. `saves`: one per
/// layer of the graph. O(edges).
std::vector<std::vector<bool>> kept_outputs(const graph::ModelGraph& graph,
                                            const std::vector<LayerSaves>& saves);

/// Per layer, the inputs of the model that it saves and no layer before it does. O(edges).
std::vector<std::vector<int>> kept_inputs(const graph::ModelGraph& graph,
                                          const std::vector<LayerSaves>& saves);

}  // namespace penstock::profile
