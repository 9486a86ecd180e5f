#include "penstock/profile/saved_values.h"

#include <set>

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
  const auto layers = static_cast<size_t>(graph.num_layers());
  PENSTOCK_CHECK(saves.size() == layers, saves.size(), layers);
  std::vector<int64_t> bytes(layers, 0);
  std::set<ValueRef> known;
  for (size_t l = 0; l < layers; ++l) {
    const LayerId id{static_cast<int32_t>(l)};
    const auto save = [&](const ValueRef& value) {
      if (known.insert(value).second) bytes[l] = saturating_add(bytes[l], bytes_of(value));
    };
    for (size_t o = 0; o < saves[l].outputs.size(); ++o) {
      if (saves[l].outputs[o]) save({id, static_cast<int>(o)});
    }
    const std::vector<ValueRef>& inputs = graph.layer(id).inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (saves[l].inputs[i]) save(behind_views(graph, saves, inputs[i]));
    }
  }
  return bytes;
}

}  // namespace penstock::profile
