#include "penstock/model/optimizers/whole_optimizer.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "penstock/util/check.h"

namespace penstock::model::detail {
namespace {

/// a / b, or 1 where either is 0: a tensor of one number.
at::Tensor ratio_or_one(const at::Tensor& a, const at::Tensor& b) {
  return at::where((a > 0).logical_and(b > 0), a / b, at::ones_like(a));
}

/// Step 1 of Adam: the averages of gradients and of their squares.
void average(std::span<at::Tensor> state, const at::Tensor& gradient, const OptimizerSpec& spec,
             double beta1) {
  state[0].mul_(beta1).add_(gradient, 1 - beta1);
  state[1].mul_(spec.beta2).addcmul_(gradient, gradient, 1 - spec.beta2);
}

/// The nearest matrix with orthonormal rows or columns, about: all singular values of the result
/// lie between 0.7 and 1.2. In bfloat16; the quintic iteration of Jordan et al. 2024.
at::Tensor orthogonalised(const at::Tensor& matrix, int64_t iterations, double epsilon) {
  constexpr double kA = 3.4445;
  constexpr double kB = -4.7750;
  constexpr double kC = 2.0315;
  // A copy, as the division writes into it.
  at::Tensor x = matrix.to(at::kBFloat16, /*non_blocking=*/false, /*copy=*/true);
  const bool is_tall = matrix.size(0) > matrix.size(1);
  if (is_tall) x = x.t();
  x.div_(x.norm().clamp_min(epsilon));
  for (int64_t i = 0; i < iterations; ++i) {
    const at::Tensor gram = at::mm(x, x.t());
    x = at::addmm(x, at::addmm(gram, gram, gram, kB, kC), x, kA);
  }
  return is_tall ? x.t() : x;
}

/// SOAP's for one side of a matrix; without numbers where the side is too long.
struct Side {
  at::Tensor& pairs;
  at::Tensor& basis;
  bool is_used() const { return basis.dim() == 2; }
};

/// `matrix` [rows, columns] as the bases see it: rows.basis^T matrix columns.basis; or back.
at::Tensor turned(at::Tensor matrix, const Side& rows, const Side& columns, bool back) {
  if (rows.is_used()) matrix = at::mm(back ? rows.basis : rows.basis.t(), matrix);
  if (columns.is_used()) matrix = at::mm(matrix, back ? columns.basis.t() : columns.basis);
  return matrix;
}

/// LAPACK's solver does not converge in float32 where many rows are zero, as those of units that a
/// batch has not reached; in float64 it does.
at::Tensor eigenvectors(const at::Tensor& matrix) {
  try {
    return std::get<1>(at::linalg_eigh(matrix));
  } catch (const c10::Error&) {
    if (matrix.scalar_type() == at::kDouble) throw;
    return std::get<1>(at::linalg_eigh(matrix.to(at::kDouble)));
  }
}

/// The first basis: eigenvectors, those of the largest eigenvalues first.
void begin_basis(const Side& side) {
  if (side.is_used()) side.basis.copy_(eigenvectors(side.pairs).flip({1}));
}

/// Algorithm 4. `squares` has its moments along `dim` in the basis' order.
void move_basis(const Side& side, at::Tensor& squares, int64_t dim) {
  if (!side.is_used()) return;
  const at::Tensor product = at::mm(side.pairs, side.basis);
  const at::Tensor order =
      at::argsort((side.basis * product).sum(0), /*dim=*/0, /*descending=*/true);
  squares.copy_(squares.index_select(dim, order));
  side.basis.copy_(std::get<0>(at::linalg_qr(product.index_select(1, order))));
}

}  // namespace

void WholeOptimizer::step(const at::Tensor& weight, const at::Tensor& gradient,
                          at::Tensor& new_weight, std::span<at::Tensor> state,
                          const StepContext& context) const {
  PENSTOCK_CHECK(weight.defined() && gradient.defined() && new_weight.defined());
  PENSTOCK_CHECK(weight.sizes() == gradient.sizes(), weight.sizes(), gradient.sizes());
  PENSTOCK_CHECK(weight.sizes() == new_weight.sizes(), weight.sizes(), new_weight.sizes());
  PENSTOCK_CHECK(state.size() == num_states(spec()), state.size(), num_states(spec()));
  PENSTOCK_CHECK(context.step >= 1, context.step);
  const c10::AutoGradMode no_grad(false);
  const at::Tensor before = weight.data();
  at::Tensor after = new_weight.data();
  if (!after.is_alias_of(before)) after.copy_(before);
  std::vector<at::Tensor> own;
  for (const at::Tensor& tensor : state) own.push_back(tensor.data());
  change(after, gradient.data().to(before.scalar_type()), own, context);
}

void WholeOptimizer::step_together(std::span<WeightStep> weights,
                                   const StepContext& context) const {
  for (WeightStep& one : weights)
    step(one.weight, one.gradient, one.new_weight, one.state, context);
}

void Lamb::change(at::Tensor& weight, const at::Tensor& gradient, std::span<at::Tensor> state,
                  const StepContext& context) const {
  const auto count = static_cast<double>(context.step);
  const double beta1 = context.momentum.value_or(spec().beta1);
  average(state, gradient, spec(), beta1);
  const double of_average = 1 / (1 - std::pow(beta1, count));
  const double of_root = 1 / std::sqrt(1 - std::pow(spec().beta2, count));
  at::Tensor update =
      (state[0] * of_average).div_(state[1].sqrt().mul_(of_root).add_(spec().epsilon));
  update.add_(weight, spec().weight_decay);
  weight.addcmul_(update, ratio_or_one(weight.norm(), update.norm()), -rate(context));
}

void Lars::change(at::Tensor& weight, const at::Tensor& gradient, std::span<at::Tensor> state,
                  const StepContext& context) const {
  const double decay = spec().weight_decay;
  const at::Tensor size = weight.norm();
  const at::Tensor local = ratio_or_one(size * spec().trust, gradient.norm().add_(size, decay));
  const at::Tensor direction = decay == 0 ? gradient : at::add(gradient, weight, decay);
  state[0].mul_(momentum(context)).addcmul_(direction, local, rate(context));
  weight.sub_(state[0]);
}

void Adafactor::change(at::Tensor& weight, const at::Tensor& gradient, std::span<at::Tensor> state,
                       const StepContext& context) const {
  const auto count = static_cast<double>(context.step);
  const double newest = std::pow(count, -spec().decay_power);
  const double relative = std::min(rate(context), 1 / std::sqrt(count));
  const double root_of_numbers = std::sqrt(static_cast<double>(weight.numel()));
  const at::Tensor size = weight.norm().div_(root_of_numbers).clamp_min_(spec().scale_epsilon);
  weight.mul_(1 - rate(context) * spec().weight_decay);
  at::Tensor variance;
  if (gradient.dim() > 1) {
    const auto mean_square = [&gradient](int64_t dim) {
      return gradient.norm(2, {dim}, /*keepdim=*/true)
          .square_()
          .div_(static_cast<double>(gradient.size(dim)));
    };
    at::Tensor& rows = state[0];
    at::Tensor& columns = state[1];
    rows.lerp_(mean_square(-1), newest);
    columns.lerp_(mean_square(-2), newest);
    variance = at::matmul(rows, columns).div_(rows.mean({-2}, true).clamp_min_(spec().epsilon));
  } else {
    state[2].lerp_(gradient * gradient, newest);
    variance = state[2].clone();
  }
  const double smallest = spec().epsilon * spec().epsilon;
  const at::Tensor update = variance.clamp_min_(smallest).rsqrt_().mul_(gradient);
  const at::Tensor clipping = update.norm().div_(root_of_numbers * spec().clip).clamp_min_(1);
  weight.addcmul_(update, size / clipping, -relative);
}

void Muon::change(at::Tensor& weight, const at::Tensor& gradient, std::span<at::Tensor> state,
                  const StepContext& context) const {
  PENSTOCK_CHECK(weight.dim() == 2, weight.sizes());
  state[0].lerp_(gradient, 1 - momentum(context));
  const at::Tensor direction =
      spec().nesterov ? gradient.lerp(state[0], momentum(context)) : state[0];
  const at::Tensor update =
      orthogonalised(direction, static_cast<int64_t>(spec().iterations), spec().norm_epsilon);
  const auto rows = static_cast<double>(weight.size(0));
  const auto columns = static_cast<double>(weight.size(1));
  const double length = spec().match_rms ? 0.2 * std::sqrt(std::max(rows, columns))
                                         : std::sqrt(std::max(1.0, rows / columns));
  weight.mul_(1 - rate(context) * spec().weight_decay);
  weight.add_(update, -rate(context) * length);
}

void Soap::change(at::Tensor& weight, const at::Tensor& gradient, std::span<at::Tensor> state,
                  const StepContext& context) const {
  PENSTOCK_CHECK(weight.dim() == 2, weight.sizes());
  const Side rows{state[2], state[4]};
  const Side columns{state[3], state[5]};
  const double share = 1 - spec().beta2;
  const auto keep_pairs = [&] {
    if (rows.is_used()) rows.pairs.lerp_(at::mm(gradient, gradient.t()), share);
    if (columns.is_used()) columns.pairs.lerp_(at::mm(gradient.t(), gradient), share);
  };
  if (context.step == 1) {
    keep_pairs();
    begin_basis(rows);
    begin_basis(columns);
    return;
  }
  // Of Adam's steps, which begin with the second one.
  const int64_t step = context.step - 1;
  const double beta1 = context.momentum.value_or(spec().beta1);
  const double of_average = 1 / (1 - std::pow(beta1, static_cast<double>(step)));
  const double of_root = 1 / std::sqrt(1 - std::pow(spec().beta2, static_cast<double>(step)));
  const at::Tensor seen = turned(gradient, rows, columns, /*back=*/false);
  state[0].lerp_(gradient, 1 - beta1);
  state[1].mul_(spec().beta2).addcmul_(seen, seen, share);
  const at::Tensor update = turned(state[0], rows, columns, /*back=*/false)
                                .mul(of_average)
                                .div_(state[1].sqrt().mul_(of_root).add_(spec().epsilon));
  weight.mul_(1 - rate(context) * spec().weight_decay);
  weight.add_(turned(update, rows, columns, /*back=*/true), -rate(context));
  keep_pairs();
  if (step % static_cast<int64_t>(spec().basis_every) != 0) return;
  move_basis(rows, state[1], 0);
  move_basis(columns, state[1], 1);
}

}  // namespace penstock::model::detail
