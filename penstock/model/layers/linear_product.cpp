#include "penstock/model/layers/linear_product.h"

#include <ATen/Context.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/linear.h>

#include "penstock/model/layers/blocked_product.h"
#include "penstock/model/torch_compat.h"

namespace penstock::model {

namespace {

/// Multiply-adds of a product for which a copy of the weight is worth its time.
constexpr int64_t kLarge = int64_t{1} << 31;

/// Matrix units take rows of so many bytes.
constexpr int64_t kRowBytes = 16;

/// A multiple of so many features is fast in this type; 1: any number.
int64_t fast_multiple(at::ScalarType type) {
  if (type == at::kBFloat16 || type == at::kHalf) return kRowBytes / 2;
  return type == at::kFloat && at::globalContext().allowTF32CuBLAS() ? kRowBytes / 4 : 1;
}

/// Whether the product is one of those below.
bool may_be_padded(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  if (!input.is_cuda() || weight.dim() != 2 || weight.numel() == 0) return false;
  if (input.scalar_type() == at::kDouble || weight.scalar_type() == at::kDouble) return false;
  if (bias.defined() && (bias.dim() != 1 || bias.size(0) != weight.size(0))) return false;
  return input.numel() / weight.size(1) >= kLarge / weight.numel();
}

}  // namespace

at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  if (detail::is_faster_blocked(input, weight, bias))
    return detail::blocked_linear(input, weight, bias);
  if (!may_be_padded(input, weight, bias)) return at::linear(input, weight, bias);
  const at::ScalarType type = gpu_autocast_type().value_or(input.scalar_type());
  const int64_t multiple = fast_multiple(type);
  if (weight.size(0) % multiple == 0) return at::linear(input, weight, bias);
  return detail::padded_linear(input, weight.to(type), bias, multiple);
}

namespace detail {

at::Tensor padded_linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                         int64_t multiple) {
  const int64_t features = weight.size(0);
  const int64_t more = (multiple - features % multiple) % multiple;
  const at::Tensor wide_bias = bias.defined() ? at::constant_pad_nd(bias, {0, more}) : bias;
  return at::linear(input, at::constant_pad_nd(weight, {0, 0, 0, more}), wide_bias)
      .narrow(-1, 0, features);
}

}  // namespace detail

}  // namespace penstock::model
