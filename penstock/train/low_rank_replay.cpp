#include "penstock/train/low_rank_replay.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "penstock/plan/low_rank.h"
#include "penstock/runtime/gradient_buffer.h"
#include "penstock/runtime/low_rank.h"
#include "penstock/runtime/low_rank_state.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::train {

namespace {

/// As replicas add: rounded one by one, and so is the sum.
at::Tensor sum_of(const model::Tensors& parts, FloatType precision) {
  at::Tensor sum;
  for (const at::Tensor& part : parts) {
    if (!part.defined()) continue;
    const at::Tensor next = runtime::rounded(part.clone(), precision);
    sum = sum.defined() ? sum + next : next;
  }
  return runtime::rounded(std::move(sum), precision);
}

bool is_any(const model::Tensors& tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& tensor) { return tensor.defined(); });
}

}  // namespace

at::Tensor LowRankReplay::whole_sum(const model::Tensors& gradients) const {
  return sum_of(gradients, precision_);
}

at::Tensor LowRankReplay::sum(const graph::ParameterRef& weight, const model::Shape& shape,
                              const model::Tensors& gradients, int64_t step) {
  const at::NoGradGuard no_grad;
  const plan::MatrixSizes sizes = plan::matrix_sizes(shape);
  if (!plan::is_factored(sizes, rank_)) return whole_sum(gradients);
  const uint64_t seed =
      runtime::low_rank_seed(seed_, weight.layer, static_cast<size_t>(weight.parameter));
  State& state = states_[{weight.layer, weight.parameter}];
  if (!state.q.defined()) {
    state.q = runtime::random_columns(sizes.columns, rank_, seed);
    state.errors.resize(gradients.size());
  }
  model::Tensors whole(gradients.size());
  model::Tensors parts(gradients.size());
  for (size_t k = 0; k < gradients.size(); ++k) {
    whole[k] = state.errors[k];
    if (gradients[k].defined()) {
      const at::Tensor matrix = gradients[k].reshape({sizes.rows, sizes.columns});
      whole[k] = whole[k].defined() ? whole[k] + matrix : matrix;
    }
    if (whole[k].defined()) parts[k] = at::matmul(whole[k], state.q);
  }
  if (!is_any(whole)) return {};
  at::Tensor p = sum_of(parts, precision_).contiguous();
  runtime::orthogonalize(p);
  for (size_t k = 0; k < gradients.size(); ++k) {
    if (!whole[k].defined()) continue;
    parts[k] = runtime::rounded(at::matmul(whole[k].t(), p).contiguous(), precision_);
    state.errors[k] = whole[k] - at::matmul(p, parts[k].t());
  }
  const at::Tensor q = sum_of(parts, precision_);
  state.q = q.clone(at::MemoryFormat::Contiguous);
  runtime::orthogonalize(state.q, derive_seed(seed, step + 1));
  return at::matmul(p, q.t()).reshape(shape);
}

}  // namespace penstock::train
