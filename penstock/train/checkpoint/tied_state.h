// Checkpoints hold a tied weight once, with its owner. These functions remove it from the other
// layers' state and put it back.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/model/model.h"
#include "penstock/train/checkpoint/layer_state.h"

namespace penstock::train {

/// What a layer keeps in its own file: parameters that are not tied to another layer's, and
/// buffers.
struct OwnSpecs {
  std::vector<model::ParameterSpec> weights;
  std::vector<model::ParameterSpec> buffers;
  std::vector<model::ParameterSpec> carried;  ///< of all samples of a mini-batch
  bool empty() const { return weights.empty() && buffers.empty(); }
};
/// `carried_samples`: of a mini-batch, where states are carried; 0: they are not.
OwnSpecs own_specs(const model::Model& model, LayerId layer, int64_t carried_samples = 0);

/// `state` without the tied parameters; its weights and optimiser states must be those of all
/// parameters of the layer. Shares tensors.
LayerState own_state(const model::Model& model, LayerId layer, const LayerState& state);

/// Takes the own state of this rank's layers, including owners, and puts the owners' tensors into
/// the layers that are tied to them. Shares tensors. Throws CheckpointError when a layer lacks a
/// state of the optimiser that an owner has.
void restore_ties(const model::Model& model, std::vector<LayerState>& layers);

}  // namespace penstock::train
