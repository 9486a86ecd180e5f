// Which layers of a model cost the same: those of repeated blocks; and which models do.
#pragma once

#include <string>
#include <vector>

#include "penstock/model/model.h"

namespace penstock::model::detail {

/// Layers that do the same work, ascending; at least two.
using LayerClass = std::vector<LayerId>;

/// The classes among the layers from `first` to `last`, by their first layers. Alike are layers
/// with
/// - equal code (known_code.h: a layer that does not say its code is like no other),
/// - equal shapes of weights, buffers, inputs and outputs, and equal types of inputs,
/// - the same inputs that need gradients,
/// - as many readers of each output.
/// A layer that makes a result of the model is like no other. O(layers * log layers + edges).
std::vector<LayerClass> layer_classes(const Model& model, LayerId first, LayerId last);

}  // namespace penstock::model::detail

namespace penstock::model {

/// All that the times of the model's layers depend on, but the machine and the options: its layers
/// with their names, code (known_code.h), shapes and types, and what reads what. Models of equal
/// texts have equal profiles. Empty where a layer does not say what it does.
std::string work_text(const Model& model);

}  // namespace penstock::model
