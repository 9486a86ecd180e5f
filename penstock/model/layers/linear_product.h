// The product of a linear layer, for built-in layers and those of imported programs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace penstock::model {

/// at::linear(): input [..., in], weight [features, in], bias [features] or undefined; the result
/// [..., features]. On a GPU, where a large product has a number of features that its matrix units
/// do not take as it is (such as the 50,257 tokens of GPT-2), zeros are added to the weight and
/// left out of the result, which is then a view: the same numbers but for rounding, several times
/// as fast. On some CPUs large products are oneDNN's (blocked_product.h).
at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias);

namespace detail {

/// The features rounded up to a multiple of `multiple` by zeros, which the result lacks.
at::Tensor padded_linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                         int64_t multiple);

}  // namespace detail

}  // namespace penstock::model
