// What travels of gradients under PowerSGD of rank R (GradientSync::PowerSgd): of a weight of n
// rows and m columns, which are its first dimension and all others together,
//
//   (n + m) R numbers   where that is less than n m: an n x R and an m x R factor
//   n m numbers         otherwise, and of vectors: the gradient itself
//
// Pure; thread-safe.
//
//   summed_numbers(std::vector<int64_t>{1000, 64, 3, 3}, 4) == 4 * (1000 + 576)
#pragma once

#include <cstdint>
#include <span>

#include "penstock/plan/plan.h"

namespace penstock::plan {

struct MatrixSizes {
  int64_t rows = 1;
  int64_t columns = 1;
};

/// Of a tensor of this shape; rows = 1 for one without dimensions. Saturates.
MatrixSizes matrix_sizes(std::span<const int64_t> shape);
/// Whether its gradient is summed as factors of this rank; rank 0: never.
bool is_factored(MatrixSizes sizes, int64_t rank);
/// The numbers that its sum has. Saturates.
int64_t summed_numbers(MatrixSizes sizes, int64_t rank);

/// What a replica keeps per weight for PowerSGD, at most: the error. (Factors are small.)
inline constexpr double kErrorsPerWeight = 1;

/// Throws ConfigError for a rank under another method than PowerSGD or none under it, and, under
/// it, where replicas are teams or share out the optimiser's state. O(stages).
void check_low_rank(const Plan& plan);

}  // namespace penstock::plan
