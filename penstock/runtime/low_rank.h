// The arithmetic of PowerSGD (Vogels, Karimireddy and Jaggi, 2019) that every replica does for
// itself with the same numbers: plain loops in a fixed order, so that the bits are the same with
// any number of threads, on any processor. Matrices are contiguous float32 in the host's memory.
// Pure; thread-safe.
//
//   at::Tensor p = sum.clone();
//   orthogonalize(p);                                  // p's columns are orthonormal
//   add_product(gradient, p, q, 1);                    // gradient += p q^T
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::runtime {

/// Makes the columns of [n, R] orthonormal, from the left, by Gram-Schmidt in double precision.
/// One that nearly depends on those before it (less than 1e-5 of its length is left) becomes 0;
/// returns which do. Numbers that are not finite stay so. O(n R^2).
std::vector<size_t> orthogonalize(at::Tensor& columns);

/// The same, but such a column is drawn anew, so that all R are orthonormal where R <= n.
void orthogonalize(at::Tensor& columns, uint64_t seed);

/// [rows, rank] orthonormal columns, drawn at random; the same for a seed everywhere.
at::Tensor random_columns(int64_t rows, int64_t rank, uint64_t seed);

/// target += sign p q^T, with p of [n, R], q of [m, R] and a contiguous target of n m numbers.
void add_product(at::Tensor& target, const at::Tensor& p, const at::Tensor& q, float sign);

}  // namespace penstock::runtime
