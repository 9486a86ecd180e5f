#include "penstock/profile/saved_values.h"

#include <map>

#include "penstock/util/check.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::profile {

using graph::ValueRef;

namespace {

ValueRef behind_views(const graph::ModelGraph& graph, const std::vector<LayerSaves>& saves,
                      ValueRef value) {
  while (!value.is_model_input()) {
    const int input = saves[value.layer.index()].view_of[static_cast<size_t>(value.output)];
    if (input < 0) break;
    value = graph.layer(value.layer).inputs[static_cast<size_t>(input)];
  }
  return value;
}

/// By saved value: the first layer that saves it.
std::map<ValueRef, LayerId> first_savers(const graph::ModelGraph& graph,
                                         const std::vector<LayerSaves>& saves) {
  const auto layers = static_cast<size_t>(graph.num_layers());
  PENSTOCK_CHECK(saves.size() == layers, saves.size(), layers);
  std::map<ValueRef, LayerId> savers;
  for (size_t l = 0; l < layers; ++l) {
    const LayerId id{static_cast<int32_t>(l)};
    for (size_t o = 0; o < saves[l].outputs.size(); ++o) {
      if (saves[l].outputs[o]) savers.emplace(ValueRef{id, static_cast<int>(o)}, id);
    }
    const std::vector<ValueRef>& inputs = graph.layer(id).inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (saves[l].inputs[i]) savers.emplace(behind_views(graph, saves, inputs[i]), id);
    }
  }
  return savers;
}

}  // namespace

LayerSaves saves_of(const graph::LayerNode& layer, bool inputs, bool outputs, bool is_view) {
  const auto count = static_cast<size_t>(layer.num_outputs);
  return {.inputs = std::vector<bool>(layer.inputs.size(), inputs),
          .outputs = std::vector<bool>(count, outputs),
          .view_of = std::vector<int>(count, is_view && !layer.inputs.empty() ? 0 : -1)};
}

std::vector<int64_t> saved_bytes(const graph::ModelGraph& graph,
                                 const std::vector<LayerSaves>& saves,
                                 const std::function<int64_t(const ValueRef&)>& bytes_of) {
  std::vector<int64_t> bytes(static_cast<size_t>(graph.num_layers()), 0);
  for (const auto& [value, layer] : first_savers(graph, saves))
    bytes[layer.index()] = saturating_add(bytes[layer.index()], bytes_of(value));
  return bytes;
}

std::vector<std::vector<std::optional<LayerId>>> counting_layers(
    const graph::ModelGraph& graph, const std::vector<LayerSaves>& saves) {
  const std::map<ValueRef, LayerId> savers = first_savers(graph, saves);
  std::vector<std::vector<std::optional<LayerId>>> result;
  for (const graph::LayerNode& layer : graph.layers()) {
    std::vector<std::optional<LayerId>>& of_inputs = result.emplace_back(layer.inputs.size());
    for (size_t i = 0; i < of_inputs.size(); ++i) {
      const ValueRef value = behind_views(graph, saves, layer.inputs[i]);
      if (saves[result.size() - 1].inputs[i] && !value.is_model_input())
        of_inputs[i] = savers.at(value);
    }
  }
  return result;
}

}  // namespace penstock::profile
