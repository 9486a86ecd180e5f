#include "penstock/runtime/global_gradients.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

namespace penstock::runtime {

GlobalGradients::GlobalGradients(int workers, std::vector<size_t> copies_per_group, size_t weights)
    : barrier_(workers),
      squares_{std::vector<double>(weights, 0.0), std::vector<double>(weights, 0.0)} {
  for (const size_t copies : copies_per_group) ties_.emplace_back(copies);
}

at::Tensor GlobalGradients::tied_sum(size_t group) const {
  const at::NoGradGuard no_grad;
  at::Tensor sum;
  for (const at::Tensor& part : ties_[group]) {
    if (part.defined()) sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

double GlobalGradients::norm(int64_t round) const {
  double sum = 0;
  for (const double squares : squares_[static_cast<size_t>(round % 2)]) sum += squares;
  return std::sqrt(sum);
}

double sum_of_squares(const at::Tensor& tensor) {
  if (!tensor.defined()) return 0;
  const at::NoGradGuard no_grad;
  const double norm =
      at::linalg_vector_norm(tensor.contiguous(), 2, c10::nullopt, /*keepdim=*/false, at::kDouble)
          .item<double>();
  return norm * norm;
}

double clip_factor(double norm, double limit) {
  constexpr double kEpsilon = 1e-6;
  return limit > 0 && norm > limit ? limit / (norm + kEpsilon) : 1;
}

}  // namespace penstock::runtime
