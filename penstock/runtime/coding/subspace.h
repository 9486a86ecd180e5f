// Tokens as coefficients in a fixed orthonormal basis U [width, K]: x becomes x U, and comes back
// as (x U) U^T, its part inside of the subspace. Gradients go back the same way. Nothing is lost of
// a model whose residual stream has no other part; of any other model the part outside is. Source:
// Ramasinghe et al., "Protocol Models", NeurIPS 2025, section 4, where U is that of all boundaries,
// too. Differs: U is drawn once and not moved during the training.
//
//   at::Tensor sent = into_subspace(tokens, 160);             // [..., 512] -> [..., 160]
//   at::Tensor tokens = out_of_subspace(sent, 512);
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace penstock::runtime {

/// Whether tokens of this width are coded: narrower ones and numbers that are no tokens are not.
inline bool has_subspace(c10::IntArrayRef sizes, int64_t rank) {
  return sizes.size() >= 2 && sizes.back() > rank;
}

/// The most that a basis may take: tokens' width times rank squared, about half a minute of a core.
inline constexpr int64_t kMostBasisWork = int64_t{1} << 34;

/// Makes the basis, where there is none yet, so that no worker makes it in the middle of a run.
/// Throws ConfigError where that would take too long (kMostBasisWork). Thread-safe.
void prepare_subspace(int64_t width, int64_t rank);

/// float32 on the CPU. Thread-safe; the first call for a width makes the basis and throws as
/// prepare_subspace().
at::Tensor into_subspace(const at::Tensor& tokens, int64_t rank);
at::Tensor out_of_subspace(const at::Tensor& coefficients, int64_t width);

}  // namespace penstock::runtime
