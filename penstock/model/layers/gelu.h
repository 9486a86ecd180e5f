// Gaussian error linear units, for built-in layers and those of imported programs.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace penstock::model {

/// at::gelu(): `approximate` is "none" or "tanh". In libtorch 1.13 the gradient of its own is
/// garbage where the gradient that comes in has other strides than the input (oneDNN writes beside
/// it); here it is right.
at::Tensor gelu(const at::Tensor& input, const std::string& approximate);

}  // namespace penstock::model
