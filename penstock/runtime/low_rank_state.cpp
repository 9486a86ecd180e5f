#include "penstock/runtime/low_rank_state.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <fmt/format.h>

#include <utility>

#include "penstock/model/device/tensor_memory.h"
#include "penstock/plan/low_rank.h"
#include "penstock/runtime/fabric/fabric.h"
#include "penstock/runtime/gradient_buffer.h"
#include "penstock/runtime/low_rank.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"

namespace penstock::runtime {

using model::Tensors;

namespace {

bool has_factors(const LowRankWeight& weight, int64_t rank) {
  return !weight.is_copy && !weight.is_shared &&
         plan::is_factored(plan::matrix_sizes(weight.shape), rank);
}

}  // namespace

StageWeights low_rank_sums(const std::vector<LowRankWeight>& weights, int64_t rank) {
  StageWeights sums;
  for (const LowRankWeight& weight : weights) {
    const int64_t rows = plan::matrix_sizes(weight.shape).rows;
    sums.shapes.push_back(weight.is_copy              ? model::Shape{0}
                          : has_factors(weight, rank) ? model::Shape{rows, rank}
                                                      : weight.shape);
  }
  for (const LowRankWeight& weight : weights) {
    const int64_t columns = plan::matrix_sizes(weight.shape).columns;
    sums.shapes.push_back(has_factors(weight, rank) ? model::Shape{columns, rank}
                                                    : model::Shape{0});
  }
  sums.layer_ends = sums.bucket_ends = {weights.size(), sums.shapes.size()};
  return sums;
}

LowRankState::LowRankState(std::vector<LowRankWeight> weights, int64_t rank, FloatType precision)
    : weights_(std::move(weights)),
      rank_(rank),
      precision_(precision),
      q_(weights_.size()),
      errors_(weights_.size()),
      columns_(weights_.size()) {
  for (size_t w = 0; w < weights_.size(); ++w) {
    if (!has_factors(weights_[w], rank)) continue;
    q_[w] = random_columns(plan::matrix_sizes(weights_[w].shape).columns, rank, weights_[w].seed);
  }
}

at::Tensor LowRankState::as_matrix(const at::Tensor& tensor, size_t weight) const {
  const plan::MatrixSizes sizes = plan::matrix_sizes(weights_[weight].shape);
  return tensor.view({sizes.rows, sizes.columns});
}

Tensors LowRankState::begin(Tensors gradients) {
  const at::NoGradGuard no_grad;
  PENSTOCK_CHECK(gradients.size() == weights_.size(), gradients.size(), weights_.size());
  Tensors parts(weights_.size());
  for (size_t w = 0; w < weights_.size(); ++w) {
    at::Tensor& gradient = gradients[w];
    if (weights_[w].is_copy) continue;
    if (!q_[w].defined()) {
      if (gradient.defined()) parts[w] = rounded(std::move(gradient), precision_);
      continue;
    }
    if (errors_[w].defined() && gradient.defined()) {
      errors_[w].add_(gradient);
    } else if (gradient.defined()) {
      errors_[w] = std::move(gradient);
      model::set_memory_kind(errors_[w], MemoryKind::OptimizerState);
    }
    gradient.reset();
    if (errors_[w].defined())
      parts[w] = rounded(at::matmul(as_matrix(errors_[w], w), q_[w]), precision_);
  }
  return parts;
}

Tensors LowRankState::project(const Tensors& first_sums) {
  const at::NoGradGuard no_grad;
  Tensors parts(weights_.size());
  for (size_t w = 0; w < weights_.size(); ++w) {
    if (!q_[w].defined() || !first_sums[w].defined()) continue;
    columns_[w] = first_sums[w].clone(at::MemoryFormat::Contiguous);
    orthogonalize(columns_[w]);
    if (!errors_[w].defined()) continue;
    parts[w] =
        rounded(at::matmul(as_matrix(errors_[w], w).t(), columns_[w]).contiguous(), precision_);
    add_product(errors_[w], columns_[w], parts[w], -1);
  }
  return parts;
}

Tensors LowRankState::finish(const Tensors& first_sums, const Tensors& second_sums, int64_t step) {
  const at::NoGradGuard no_grad;
  Tensors sums(weights_.size());
  for (size_t w = 0; w < weights_.size(); ++w) {
    if (!q_[w].defined()) {
      sums[w] = first_sums[w];
      continue;
    }
    if (!second_sums[w].defined()) continue;  // no replica has anything
    sums[w] = at::zeros(weights_[w].shape, at::kFloat);
    add_product(sums[w], columns_[w], second_sums[w], 1);
    q_[w].copy_(second_sums[w]);
    orthogonalize(q_[w], derive_seed(weights_[w].seed, step + 1));
    columns_[w].reset();
  }
  return sums;
}

Tensors LowRankState::factors() const {
  Tensors all;
  for (const at::Tensor& q : q_) all.push_back(q.defined() ? q : at::empty({0}, at::kFloat));
  return all;
}

Tensors LowRankState::errors() const {
  Tensors all;
  for (size_t w = 0; w < weights_.size(); ++w) {
    all.push_back(!q_[w].defined()       ? at::empty({0}, at::kFloat)
                  : errors_[w].defined() ? errors_[w]
                                         : at::zeros(weights_[w].shape, at::kFloat));
  }
  return all;
}

void LowRankState::load(model::TensorSpan factors, model::TensorSpan errors) {
  const at::NoGradGuard no_grad;
  PENSTOCK_CHECK(factors.size() == weights_.size() && errors.size() == weights_.size(),
                 factors.size(), errors.size());
  for (size_t w = 0; w < weights_.size(); ++w) {
    if (!q_[w].defined()) continue;
    if (factors[w].numel() == 0) continue;  // of a stage with one replica, until now
    if (factors[w].sizes() != q_[w].sizes()) {
      throw ConfigError(fmt::format(
          "the checkpoint was made with factors of another rank: expected {} numbers of "
          "a weight's factor, found {}; resume with the same rank",
          q_[w].numel(), factors[w].numel()));
    }
    q_[w].copy_(factors[w]);
    // A replica that has nothing to add says so, as before.
    errors_[w] =
        errors[w].any().item<bool>() ? errors[w].clone(at::MemoryFormat::Contiguous) : at::Tensor();
  }
}

void LowRankState::claim_memory() const {
  for (const Tensors* tensors : {&q_, &errors_}) {
    for (const at::Tensor& tensor : *tensors) {
      if (tensor.defined()) model::set_memory_kind(tensor, MemoryKind::OptimizerState);
    }
  }
}

}  // namespace penstock::runtime
