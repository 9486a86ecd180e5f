#include "penstock/profile/kept_outputs.h"

#include "penstock/util/check.h"

namespace penstock::profile {

LayerSaves saves_of(const graph::LayerNode& layer, bool inputs, bool outputs, bool is_view) {
  const auto count = static_cast<size_t>(layer.num_outputs);
  return {.inputs = std::vector<bool>(layer.inputs.size(), inputs),
          .outputs = std::vector<bool>(count, outputs),
          .view_of = std::vector<int>(count, is_view && !layer.inputs.empty() ? 0 : -1)};
}

std::vector<std::vector<bool>> kept_outputs(const graph::ModelGraph& graph,
                                            const std::vector<LayerSaves>& saves) {
  const auto layers = static_cast<size_t>(graph.num_layers());
  PENSTOCK_CHECK(saves.size() == layers, saves.size(), layers);
  std::vector<std::vector<bool>> kept(layers);
  for (size_t l = 0; l < layers; ++l) kept[l] = saves[l].outputs;
  // Backwards, so that what is said of a view is known before the value behind it is asked for.
  for (size_t l = layers; l-- > 0;) {
    const graph::LayerNode& layer = graph.layer(LayerId{static_cast<int32_t>(l)});
    std::vector<bool> inputs = saves[l].inputs;
    for (size_t o = 0; o < saves[l].view_of.size(); ++o) {
      const int input = saves[l].view_of[o];
      if (input >= 0 && kept[l][o]) inputs[static_cast<size_t>(input)] = true;
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      const graph::ValueRef& value = layer.inputs[i];
      if (!inputs[i] || value.is_model_input()) continue;
      kept[value.layer.index()][static_cast<size_t>(value.output)] = true;
    }
  }
  return kept;
}

std::vector<std::vector<int>> kept_inputs(const graph::ModelGraph& graph,
                                          const std::vector<LayerSaves>& saves) {
  std::vector<std::vector<int>> kept(saves.size());
  std::vector<bool> is_known(static_cast<size_t>(graph.num_inputs()), false);
  for (size_t l = 0; l < saves.size(); ++l) {
    const graph::LayerNode& layer = graph.layer(LayerId{static_cast<int32_t>(l)});
    for (size_t i = 0; i < layer.inputs.size(); ++i) {
      const graph::ValueRef& value = layer.inputs[i];
      if (!value.is_model_input() || !saves[l].inputs[i]) continue;
      const auto input = static_cast<size_t>(value.output);
      if (!is_known[input]) kept[l].push_back(value.output);
      is_known[input] = true;
    }
  }
  return kept;
}

}  // namespace penstock::profile
