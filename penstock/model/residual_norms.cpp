#include "penstock/model/residual_norms.h"

#include <algorithm>
#include <cstdint>
#include <string>

namespace penstock::model {
namespace {

/// Layers from this value back to where the branch forks off.
int64_t branch_length(const graph::ModelGraph& graph, graph::ValueRef value) {
  int64_t length = 0;
  while (!value.is_model_input() && graph.successors(value.layer).size() == 1) {
    const std::vector<graph::ValueRef>& inputs = graph.layer(value.layer).inputs;
    ++length;
    if (inputs.size() != 1) break;
    value = inputs.front();
  }
  return length;
}

}  // namespace

std::vector<LayerId> last_norms(const graph::ModelGraph& graph) {
  std::vector<LayerId> norms;
  for (const graph::LayerNode& layer : graph.layers()) {
    if (layer.kind != "add") continue;
    std::vector<int64_t> lengths;
    for (const graph::ValueRef& input : layer.inputs)
      lengths.push_back(branch_length(graph, input));
    const auto longest = std::max_element(lengths.begin(), lengths.end());
    if (std::count(lengths.begin(), lengths.end(), *longest) > 1) continue;
    const graph::ValueRef& end = layer.inputs[static_cast<size_t>(longest - lengths.begin())];
    if (!end.is_model_input() && graph.layer(end.layer).kind == "batch_norm2d")
      norms.push_back(end.layer);
  }
  std::sort(norms.begin(), norms.end());
  return norms;
}

bool has_batch_norm(const graph::ModelGraph& graph) {
  return std::any_of(graph.layers().begin(), graph.layers().end(),
                     [](const graph::LayerNode& layer) {
                       return layer.kind.find("batch_norm") != std::string::npos;
                     });
}

}  // namespace penstock::model
