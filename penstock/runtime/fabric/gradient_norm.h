// The norm of gradients, and what it is scaled down by.
#pragma once

#include <ATen/core/Tensor.h>

namespace penstock::runtime {

/// A scalar of float64 on the tensor's device: its square is sum_of_squares().
at::Tensor norm_of(const at::Tensor& tensor);

/// In double precision and row by row, whatever the strides are; 0 for an undefined tensor.
double sum_of_squares(const at::Tensor& tensor);

/// What gradients with this norm are multiplied by so that it does not exceed `limit`: as
/// torch.nn.utils.clip_grad_norm_ has it, limit / (norm + 1e-6), so that no norm is divided by as
/// zero. 1 below the limit, without a limit (0) and where the norm is no number.
double clip_factor(double norm, double limit);

}  // namespace penstock::runtime
