#include "penstock/model/optimizers/next_step.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "penstock/util/check.h"

namespace penstock::model {
namespace {

/// The direction that a step goes along, to be multiplied by minus the rate.
struct Direction {
  at::Tensor of_state;
  double decay = 0;  ///< of the weight, to be added
};

Direction of_moments(const OptimizerSpec& spec, std::span<const at::Tensor> state,
                     const StepContext& context) {
  const auto count = static_cast<double>(context.step);
  const double mean_scale = 1 / (1 - std::pow(spec.beta1, count));
  const double root_scale = 1 / std::sqrt(1 - std::pow(spec.beta2, count));
  // With amsgrad the largest second moment is the last state.
  const at::Tensor& squares = spec.amsgrad ? state[2] : state[1];
  const at::Tensor divisor = squares.sqrt().mul_(root_scale).add_(spec.epsilon);
  return {at::div(state[0], divisor).mul_(mean_scale)};
}

Direction of_decoupled_moments(const OptimizerSpec& spec, std::span<const at::Tensor> state,
                               const StepContext& context) {
  Direction direction = of_moments(spec, state, context);
  direction.decay = spec.weight_decay;
  return direction;
}

Direction of_momentum(const OptimizerSpec&, std::span<const at::Tensor> state, const StepContext&) {
  return {state[0]};
}

/// Its first state is the mean of squares.
Direction of_second_state(const OptimizerSpec&, std::span<const at::Tensor> state,
                          const StepContext&) {
  return {state[1]};
}

Direction of_sign(const OptimizerSpec& spec, std::span<const at::Tensor> state,
                  const StepContext&) {
  return {state[0].sign(), spec.weight_decay};
}

using DirectionOf = Direction (*)(const OptimizerSpec&, std::span<const at::Tensor>,
                                  const StepContext&);
/// In the order of kSayNextStep.
constexpr std::array<DirectionOf, kSayNextStep.size()> kDirections = {
    of_momentum,     of_moments, of_decoupled_moments, of_moments, of_decoupled_moments,
    of_second_state, of_sign};

DirectionOf direction_of(OptimizerKind kind) {
  return kDirections[static_cast<size_t>(std::find(kSayNextStep.begin(), kSayNextStep.end(), kind) -
                                         kSayNextStep.begin())];
}

}  // namespace

at::Tensor moved_ahead(const Optimizer& optimizer, const at::Tensor& weight,
                       std::span<const at::Tensor> state, const StepContext& context,
                       int64_t steps) {
  const at::NoGradGuard no_grad;
  const OptimizerSpec& spec = optimizer.spec();
  PENSTOCK_CHECK(says_next_step(spec), to_string(spec.kind));
  PENSTOCK_CHECK(context.step >= 0, context.step);
  if (context.step == 0) return weight.detach().clone();
  const double far = context.learning_rate * spec.rate_factor * static_cast<double>(steps);
  const Direction direction = direction_of(spec.kind)(spec, state, context);
  at::Tensor moved = at::sub(weight.detach(), direction.of_state, far);
  if (direction.decay > 0) moved.sub_(weight.detach(), far * direction.decay);
  return moved;
}

}  // namespace penstock::model
