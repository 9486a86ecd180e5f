#include "penstock/train/checkpoint/tied_state.h"

#include <fmt/format.h>

#include "penstock/util/check.h"
#include "penstock/util/error.h"

namespace penstock::train {
namespace {

bool is_tied(const graph::LayerNode& node, size_t parameter) {
  for (const graph::WeightTie& tie : node.ties) {
    if (static_cast<size_t>(tie.parameter) == parameter) return true;
  }
  return false;
}

template <class T>
std::vector<T> own(const graph::LayerNode& node, const std::vector<T>& all) {
  std::vector<T> result;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!is_tied(node, i)) result.push_back(all[i]);
  }
  return result;
}

}  // namespace

OwnSpecs own_specs(const model::Model& model, LayerId layer, int64_t carried_samples) {
  OwnSpecs specs{.weights = own(model.graph().layer(layer), model.layer(layer).parameters()),
                 .buffers = model.layer(layer).buffers(),
                 .carried = {}};
  if (carried_samples == 0) return specs;
  for (model::CarriedSpec& state : model.layer(layer).carried()) {
    state.shape.insert(state.shape.begin(), carried_samples);
    specs.carried.push_back(
        {.name = std::move(state.name), .shape = std::move(state.shape), .init = {}});
  }
  return specs;
}

LayerState own_state(const model::Model& model, LayerId layer, const LayerState& state) {
  const graph::LayerNode& node = model.graph().layer(layer);
  if (node.ties.empty()) return state;
  LayerState result{
      .weights = own(node, state.weights), .buffers = state.buffers, .carried = state.carried};
  for (const auto& [name, tensors] : state.optimizer) result.optimizer[name] = own(node, tensors);
  return result;
}

void restore_ties(const model::Model& model, std::vector<LayerState>& layers) {
  for (size_t i = 0; i < layers.size(); ++i) {
    LayerState& state = layers[i];
    if (!state.here) continue;
    // Ascending, and owners come first in the graph: so every insertion is at the right position,
    // and the owner is already complete.
    for (const graph::WeightTie& tie : model.graph().layers()[i].ties) {
      const LayerState& owner = layers[tie.owner.layer.index()];
      const auto place = static_cast<size_t>(tie.parameter);
      const auto lent = static_cast<size_t>(tie.owner.parameter);
      PENSTOCK_CHECK(place <= state.weights.size(), tie.parameter, state.weights.size());
      state.weights.insert(state.weights.begin() + tie.parameter, owner.weights.at(lent));
      for (const auto& [name, tensors] : owner.optimizer) {
        auto& own = state.optimizer[name];
        if (place > own.size() || lent >= tensors.size()) {
          throw CheckpointError(fmt::format(
              "the optimiser's state '{}' of layer '{}', which shares weights with '{}', is "
              "incomplete",
              name, model.graph().layers()[i].name, model.graph().layer(tie.owner.layer).name));
        }
        own.insert(own.begin() + tie.parameter, tensors.at(lent));
      }
    }
  }
}

}  // namespace penstock::train
