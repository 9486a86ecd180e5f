// Gradients in the type in which they travel (plan/sync_precision.h), as tensors. Internal to
// runtime.
#pragma once

#include <ATen/core/Tensor.h>

#include "penstock/model/layer.h"
#include "penstock/util/numbers/short_floats.h"

namespace penstock::runtime {

at::ScalarType scalar_type(FloatType type);

/// float32 rounded to the type: tensors of their own, flat, undefined where they are; under float32
/// the tensors themselves. They must be contiguous.
model::Tensors narrowed(const model::Tensors& tensors, FloatType type);
/// The same numbers as float32, in memory of their own unless they are float32.
at::Tensor widened(const at::Tensor& numbers);
/// Writes them to `place`, float32, unless they are already there.
void write(const at::Tensor& numbers, const at::Tensor& place);

/// sum += part, where `sum` is float32 and may be written to, or undefined. A part in float32 is
/// rounded to the type before, and lends its memory if it is the first one.
void add_part(at::Tensor& sum, const at::Tensor& part, FloatType type);

}  // namespace penstock::runtime
