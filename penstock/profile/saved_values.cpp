#include "penstock/profile/saved_values.h"

#include <set>

#include "penstock/util/check.h"

namespace penstock::profile {

LayerSaves saves_of(const graph::LayerNode& layer, bool inputs, bool outputs, bool is_view) {
  const auto count = static_cast<size_t>(layer.num_outputs);
  return {.inputs = std::vector<bool>(layer.inputs.size(), inputs),
          .outputs = std::vector<bool>(count, outputs),
          .view_of = std::vector<int>(count, is_view && !layer.inputs.empty() ? 0 : -1)};
}

std::vector<std::vector<graph::ValueRef>> saved_inputs(const graph::ModelGraph& graph,
                                                       const std::vector<LayerSaves>& saves) {
  const auto layers = static_cast<size_t>(graph.num_layers());
  PENSTOCK_CHECK(saves.size() == layers, saves.size(), layers);
  const auto behind_views = [&](graph::ValueRef value) {
    while (!value.is_model_input()) {
      const std::vector<int>& view_of = saves[value.layer.index()].view_of;
      const int input = view_of.empty() ? -1 : view_of[static_cast<size_t>(value.output)];
      if (input < 0) break;
      value = graph.layer(value.layer).inputs[static_cast<size_t>(input)];
    }
    return value;
  };
  std::vector<std::vector<graph::ValueRef>> saved(layers);
  std::set<graph::ValueRef> known;
  for (size_t l = 0; l < layers; ++l) {
    const LayerId id{static_cast<int32_t>(l)};
    for (size_t o = 0; o < saves[l].outputs.size(); ++o) {
      if (saves[l].outputs[o]) known.insert({id, static_cast<int>(o)});
    }
    const std::vector<graph::ValueRef>& inputs = graph.layer(id).inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!saves[l].inputs[i]) continue;
      const graph::ValueRef value = behind_views(inputs[i]);
      if (known.insert(value).second) saved[l].push_back(value);
    }
  }
  return saved;
}

}  // namespace penstock::profile
