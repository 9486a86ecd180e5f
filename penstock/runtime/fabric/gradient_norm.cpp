#include "penstock/runtime/fabric/gradient_norm.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

namespace penstock::runtime {

at::Tensor norm_of(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  return at::linalg_vector_norm(tensor.contiguous(), 2, c10::nullopt, /*keepdim=*/false,
                                at::kDouble);
}

double sum_of_squares(const at::Tensor& tensor) {
  if (!tensor.defined()) return 0;
  const double norm = norm_of(tensor).item<double>();
  return norm * norm;
}

double clip_factor(double norm, double limit) {
  constexpr double kEpsilon = 1e-6;
  return limit > 0 && norm > limit ? limit / (norm + kEpsilon) : 1;
}

}  // namespace penstock::runtime
