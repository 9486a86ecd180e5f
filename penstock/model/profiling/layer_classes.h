// Which layers of a model cost the same: those of repeated blocks. Internal to the profiler.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
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

/// Per layer of the model: whether gradients reach it, so that its outputs need one: it has
/// weights, or reads what needs one.
std::vector<bool> layers_with_gradients(const Model& model);

/// Type of a value in single precision.
at::ScalarType type_of(const Model& model, const graph::ValueRef& value);

/// A random one of real numbers, as its layer makes it for `batch` samples.
at::Tensor made_up(const Model& model, const graph::ValueRef& value, int64_t batch,
                   at::Generator& generator);

/// Per layer and output: how many inputs of layers and results of the model it is.
std::vector<std::vector<int>> uses_of_outputs(const graph::ModelGraph& graph);

}  // namespace penstock::model::detail
