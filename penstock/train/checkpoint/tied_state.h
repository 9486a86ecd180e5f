// Checkpoints hold a tied weight once, with its owner; these leave it out of the other layers'
// state and put it back.
#pragma once

#include <vector>

#include "penstock/model/model.h"
#include "penstock/train/checkpoint/checkpoint.h"

namespace penstock::train {

/// What a layer keeps in its own file: parameters that are tied to no other layer's, and buffers.
struct OwnSpecs {
  std::vector<model::ParameterSpec> weights;
  std::vector<model::ParameterSpec> buffers;
  bool empty() const { return weights.empty() && buffers.empty(); }
};
OwnSpecs own_specs(const model::Model& model, LayerId layer);

/// `state`, whose weights and optimiser states are those of all the layer's parameters, without the
/// tied ones. Shares tensors.
LayerState own_state(const model::Model& model, LayerId layer, const LayerState& state);

/// Given the own state of the layers that are here, owners included: puts the owners' tensors where
/// they are tied to. Shares tensors.
/// Throws CheckpointError when a layer lacks a state of the optimiser that an owner has.
void restore_ties(const model::Model& model, std::vector<LayerState>& layers);

}  // namespace penstock::train
