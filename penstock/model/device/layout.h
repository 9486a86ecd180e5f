// In which order GPUs compute images: the channels of a pixel side by side ("channels last"), as
// their matrix units take them. In float32, which those do not compute, they stay as they are.
#pragma once

#include "penstock/model/model.h"
#include "penstock/model/precision.h"

namespace penstock::model {

/// Whether the model's images are laid out so on this device. The values are the same either way,
/// up to rounding.
bool lays_channels_last(const Model& model, Precision precision, at::Device device);

/// [batch, channels, height, width] of real numbers in that order; other tensors as they are.
at::Tensor channels_last(at::Tensor tensor);

/// A weight's gradient in the order of the weight: contiguous.
at::Tensor in_order(at::Tensor gradient);

}  // namespace penstock::model
