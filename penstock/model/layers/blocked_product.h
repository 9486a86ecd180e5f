// Large products of linear layers by oneDNN, on processors for which that is faster than MKL, which
// at::linear() calls. MKL takes its generic kernels on processors that are not Intel's: on an AMD
// EPYC with AVX-512, one thread, oneDNN's products [rows, in] x [in, features] took 0.75 to 0.98 of
// its time from 16 million multiply-adds on, and longer below.
//
//   if (is_faster_blocked(input, weight, bias)) return blocked_linear(input, weight, bias);
//
// Thread-safe. The choice depends on the processor, on sizes and types alone, so runs repeat.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace penstock::model {

/// Multiply-adds from which on oneDNN's products are expected to be faster on this processor; 0:
/// they are not, or there are none.
int64_t blocked_from();

namespace detail {

/// Multiply-adds from which on a product is worth oneDNN's preparations.
inline constexpr int64_t kLargeProduct = int64_t{1} << 24;

/// Whether this libtorch has oneDNN's product, and it is in use (torch.backends.mkldnn.flags).
bool has_blocked_product();

/// Whether blocked_linear() can make this product, and is expected to be faster: float32 on the
/// CPU, at least kLargeProduct multiply-adds, a processor as above.
bool is_faster_blocked(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias);

/// As at::linear(): input [..., in], weight [features, in], bias [features] or undefined; the
/// result [..., features]. All float32 on the CPU. Differentiable once. The gradients of inputs and
/// of weights are made apart (runtime/layer_split.cpp names its type). Equal to at::linear() but
/// for rounding. Throws c10::Error without has_blocked_product().
at::Tensor blocked_linear(const at::Tensor& input, const at::Tensor& weight,
                          const at::Tensor& bias);

}  // namespace detail

}  // namespace penstock::model
