// The layers of a model that a profiler runs: some stand in for others, and what comes from layers
// that are not run is a random input. Internal to the profiler.
#pragma once

#include <vector>

#include "penstock/model/model.h"

namespace penstock::model::detail {

/// Refers to layers of the model that it is a part of, which outlives it.
struct ModelPart {
  const Model* whole = nullptr;
  std::vector<LayerId> run;  ///< of the whole model: the part's layers, in its order
  Model model;               ///< without ties: each layer has its own weights anyway
  /// The values of the whole model that the last inputs stand for; those before are its inputs.
  std::vector<graph::ValueRef> made_up;
  std::vector<bool> input_needs_gradient;
  /// Per layer and output: how many more gradients the whole model adds there, -1: one less. So
  /// sums of gradients take as long as there.
  std::vector<std::vector<int>> missing_uses;
  bool makes_first_result = true;  ///< of the whole model, of which its loss is
  bool makes_only_result = true;   ///< and the model has no other
};

/// The layers `run`, ascending. `stand_in`, per layer of the model: the layer in `run`, not after
/// it, whose outputs are taken for its own; -1: none, its values are made up. Layers in `run` stand
/// for themselves. Throws ConfigError as Model.
ModelPart part_of(const Model& model, const std::vector<LayerId>& run,
                  const std::vector<LayerId>& stand_in);

}  // namespace penstock::model::detail
