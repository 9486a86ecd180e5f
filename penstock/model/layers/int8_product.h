// Products with frozen weights that are held in 8 bits. A row is cut into blocks of 128 numbers, or
// of 64, or is one block, where the larger ones do not divide it. Each block has a scale, its
// largest magnitude divided by 127, and whole numbers of -127 to 127: 1.03 bytes per weight.
//
//   const at::Tensor packed = pack_int8(weight);        // [out, in] -> int8 [out, in + 4 * blocks]
//   const at::Tensor y = int8_linear(x, packed, bias);  // like at::linear(x, weight, bias)
//
// Source: block-wise quantisation by the largest magnitude, Dettmers et al. (2022), 8-bit
// Optimizers, section 2.1. Differs: the numbers are evenly spaced. Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace penstock::model {

/// Numbers of a row that share a scale.
int64_t int8_block(int64_t columns);
/// Bytes of a packed row: its numbers, then its scales (float32).
int64_t int8_row_bytes(int64_t columns);

/// A matrix of floating-point numbers as int8 [rows, int8_row_bytes(columns)]. Its numbers must be
/// finite.
at::Tensor pack_int8(const at::Tensor& weight);
/// Some rows of a packed matrix, as numbers of that type.
at::Tensor unpack_int8(const at::Tensor& packed, int64_t columns, at::ScalarType type,
                       int64_t begin, int64_t rows);

/// input [..., in], packed [out, ...], bias [out] or undefined; the result [..., out], in the type
/// of the input. Differentiable once, for input and bias. The weight's rows become floating-point
/// numbers a few at a time, in both directions: no whole copy exists. The order of sums depends on
/// the weight's sizes alone.
at::Tensor int8_linear(const at::Tensor& input, const at::Tensor& packed, const at::Tensor& bias);

}  // namespace penstock::model
