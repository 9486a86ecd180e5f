// What the profiler and estimates need to know of a model's values. Internal to model.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "penstock/model/model.h"

namespace penstock::model::detail {

/// For one sample.
const Shape& shape_of(const Model& model, const graph::ValueRef& value);

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
