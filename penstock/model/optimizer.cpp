#include "penstock/model/optimizer.h"

#include <ATen/Parallel.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "penstock/model/optimizer_kernels.h"
#include "penstock/model/torch_compat.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"

namespace penstock::model {
namespace {

/// Numbers per task: large enough that starting threads does not matter.
constexpr int64_t kGrain = 1 << 15;

bool is_plain(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.scalar_type() == at::kFloat && tensor.is_contiguous() &&
         tensor.layout() == at::kStrided;
}

/// Whether the loops over plain memory may be used.
bool all_plain(const at::Tensor& weight, const at::Tensor& new_weight,
               std::span<const at::Tensor> state) {
  return is_plain(weight) && is_plain(new_weight) &&
         std::all_of(state.begin(), state.end(), is_plain);
}

void check_shapes(const at::Tensor& weight, const at::Tensor& gradient,
                  const at::Tensor& new_weight, std::span<const at::Tensor> state,
                  size_t expected_state) {
  PENSTOCK_CHECK(weight.defined() && gradient.defined() && new_weight.defined());
  PENSTOCK_CHECK(weight.sizes() == gradient.sizes(), weight.sizes(), gradient.sizes());
  PENSTOCK_CHECK(weight.sizes() == new_weight.sizes(), weight.sizes(), new_weight.sizes());
  PENSTOCK_CHECK(state.size() == expected_state, state.size(), expected_state);
  for (const at::Tensor& tensor : state)
    PENSTOCK_CHECK(tensor.sizes() == weight.sizes(), tensor.sizes(), weight.sizes());
}

/// A gradient that the plain loops can read; copies it when it is transposed or has another layout.
at::Tensor plain_gradient(const at::Tensor& gradient) {
  return gradient.data().to(at::kFloat).contiguous();
}

// tensor.data() shares memory but not the version counter, so writes through it stay invisible to
// autograd, as raw writes do.

/// The gradient in the weight's type and order: operations on lists need that.
at::Tensor laid_as(const at::Tensor& weight, const at::Tensor& gradient) {
  const at::Tensor plain = gradient.data().to(weight.scalar_type());
  if (plain.strides() == weight.strides()) return plain;
  return at::empty_like(weight.data()).copy_(plain);
}

/// The tensors of several weights as lists, which share memory with them.
struct WeightLists {
  explicit WeightLists(std::span<WeightStep> steps) : state(steps.front().state.size()) {
    for (WeightStep& step : steps) {
      weights.push_back(step.weight.data());
      gradients.push_back(laid_as(step.weight, step.gradient));
      for (size_t s = 0; s < state.size(); ++s) state[s].push_back(step.state[s].data());
      targets.push_back(step.new_weight.data());
    }
  }
  bool in_place() const {
    for (size_t i = 0; i < weights.size(); ++i) {
      if (!targets[i].is_alias_of(weights[i])) return false;
    }
    return true;
  }
  /// The old weights in the memory of the new ones.
  void copy_to_targets() const {
    for (size_t i = 0; i < weights.size(); ++i) {
      if (!targets[i].is_alias_of(weights[i])) targets[i].copy_(weights[i]);
    }
  }

  std::vector<at::Tensor> weights;
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> targets;
  std::vector<std::vector<at::Tensor>> state;
};

class Sgd final : public Optimizer {
 public:
  explicit Sgd(const OptimizerSpec& spec)
      : momentum_(spec.momentum),
        weight_decay_(spec.weight_decay),
        rate_factor_(spec.rate_factor),
        nesterov_(spec.nesterov) {}

  std::vector<std::string> state_names() const override {
    return momentum_ == 0 ? std::vector<std::string>{} : std::vector<std::string>{"momentum"};
  }

  void step(const at::Tensor& weight, const at::Tensor& gradient, at::Tensor& new_weight,
            std::span<at::Tensor> state, const StepContext& context) const override {
    check_shapes(weight, gradient, new_weight, state, state_names().size());
    if (!all_plain(weight, new_weight, state))
      return generic_step(weight, gradient, new_weight, state, context);
    const at::Tensor plain = plain_gradient(gradient);
    const float* from = weight.data_ptr<float>();
    const float* gradients = plain.data_ptr<float>();
    float* to = new_weight.data_ptr<float>();
    float* momentum = state.empty() ? nullptr : state[0].data_ptr<float>();
    const detail::SgdStep numbers{static_cast<float>(context.learning_rate * rate_factor_),
                                  static_cast<float>(momentum_), static_cast<float>(weight_decay_),
                                  nesterov_};
    at::parallel_for(0, weight.numel(), kGrain, [&](int64_t begin, int64_t end) {
      detail::sgd(from + begin, gradients + begin, to + begin,
                  momentum == nullptr ? nullptr : momentum + begin, end - begin, numbers);
    });
  }

  void step_together(std::span<WeightStep> steps, const StepContext& context) const override {
    if (steps.empty()) return;
    const c10::AutoGradMode no_grad(false);
    const WeightLists lists(steps);
    if (momentum_ != 0 && lists.in_place() &&
        step_sgd_together(lists.targets, lists.gradients, lists.state[0],
                          context.learning_rate * rate_factor_, momentum_, weight_decay_,
                          nesterov_))
      return;
    std::vector<at::Tensor> directions = lists.gradients;
    if (weight_decay_ != 0) directions = at::_foreach_add(directions, lists.weights, weight_decay_);
    if (momentum_ != 0) {
      at::_foreach_mul_(lists.state[0], momentum_);
      at::_foreach_add_(lists.state[0], directions);
      directions =
          nesterov_ ? at::_foreach_add(directions, lists.state[0], momentum_) : lists.state[0];
    }
    lists.copy_to_targets();
    at::_foreach_add_(lists.targets, directions, -context.learning_rate * rate_factor_);
  }

 private:
  void generic_step(const at::Tensor& weight, const at::Tensor& gradient, at::Tensor& new_weight,
                    std::span<at::Tensor> state, const StepContext& context) const {
    const c10::AutoGradMode no_grad(false);
    at::Tensor direction = gradient.data().to(weight.scalar_type());
    if (weight_decay_ != 0) direction = direction.add(weight.data(), weight_decay_);
    if (!state.empty()) {
      const at::Tensor buffer = state[0].data().mul_(momentum_).add_(direction);
      direction = nesterov_ ? direction.add(buffer, momentum_) : buffer;
    }
    new_weight.data().copy_(weight.data().sub(direction, context.learning_rate * rate_factor_));
  }

  double momentum_;
  double weight_decay_;
  double rate_factor_;
  bool nesterov_;
};

/// Adam, and AdamW (Loshchilov and Hutter 2019, algorithm 2 as torch.optim has it).
class Adam final : public Optimizer {
 public:
  explicit Adam(const OptimizerSpec& spec) : spec_(spec) {
    if (spec.name == "adamw") std::swap(spec_.weight_decay, decoupled_);
  }

  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }

  void step(const at::Tensor& weight, const at::Tensor& gradient, at::Tensor& new_weight,
            std::span<at::Tensor> state, const StepContext& context) const override {
    check_shapes(weight, gradient, new_weight, state, 2);
    const auto [step_size, scale, kept] = numbers_of(context);
    if (!all_plain(weight, new_weight, state))
      return generic_step(weight, gradient, new_weight, state, {step_size, scale, kept});
    const at::Tensor plain = plain_gradient(gradient);
    const float* from = weight.data_ptr<float>();
    const float* gradients = plain.data_ptr<float>();
    float* to = new_weight.data_ptr<float>();
    float* first = state[0].data_ptr<float>();
    float* second = state[1].data_ptr<float>();
    const detail::AdamStep numbers{
        static_cast<float>(step_size),     static_cast<float>(scale),
        static_cast<float>(spec_.beta1),   static_cast<float>(spec_.beta2),
        static_cast<float>(spec_.epsilon), static_cast<float>(spec_.weight_decay),
        static_cast<float>(kept)};
    at::parallel_for(0, weight.numel(), kGrain, [&](int64_t begin, int64_t end) {
      detail::adam(from + begin, gradients + begin, to + begin, first + begin, second + begin,
                   end - begin, numbers);
    });
  }

  void step_together(std::span<WeightStep> steps, const StepContext& context) const override {
    if (steps.empty()) return;
    const c10::AutoGradMode no_grad(false);
    const Numbers numbers = numbers_of(context);
    const WeightLists lists(steps);
    std::vector<at::Tensor> gradients = lists.gradients;
    if (spec_.weight_decay != 0)
      gradients = at::_foreach_add(gradients, lists.weights, spec_.weight_decay);
    at::_foreach_mul_(lists.state[0], spec_.beta1);
    at::_foreach_add_(lists.state[0], gradients, 1 - spec_.beta1);
    at::_foreach_mul_(lists.state[1], spec_.beta2);
    at::_foreach_addcmul_(lists.state[1], gradients, gradients, 1 - spec_.beta2);
    const std::vector<at::Tensor> denominators = at::_foreach_sqrt(lists.state[1]);
    at::_foreach_mul_(denominators, numbers.scale);
    at::_foreach_add_(denominators, spec_.epsilon);
    lists.copy_to_targets();
    if (numbers.kept != 1) at::_foreach_mul_(lists.targets, numbers.kept);
    at::_foreach_addcdiv_(lists.targets, lists.state[0], denominators, -numbers.step_size);
  }

 private:
  struct Numbers {
    double step_size;
    double scale;
    double kept;
  };

  Numbers numbers_of(const StepContext& context) const {
    PENSTOCK_CHECK(context.step >= 1, context.step);
    const auto count = static_cast<double>(context.step);
    const double rate = context.learning_rate * spec_.rate_factor;
    return {.step_size = rate / (1 - std::pow(spec_.beta1, count)),
            .scale = 1 / std::sqrt(1 - std::pow(spec_.beta2, count)),
            .kept = 1 - rate * decoupled_};
  }

  void generic_step(const at::Tensor& weight, const at::Tensor& gradient, at::Tensor& new_weight,
                    std::span<at::Tensor> state, const Numbers& numbers) const {
    const c10::AutoGradMode no_grad(false);
    at::Tensor gradients = gradient.data().to(weight.scalar_type());
    if (spec_.weight_decay != 0) gradients = gradients.add(weight.data(), spec_.weight_decay);
    const at::Tensor mean = state[0].data().mul_(spec_.beta1).add_(gradients, 1 - spec_.beta1);
    const at::Tensor square =
        state[1].data().mul_(spec_.beta2).addcmul_(gradients, gradients, 1 - spec_.beta2);
    const at::Tensor denominator = square.sqrt().mul_(numbers.scale).add_(spec_.epsilon);
    new_weight.data().copy_(
        weight.data().mul(numbers.kept).addcdiv(mean, denominator, -numbers.step_size));
  }

  OptimizerSpec spec_;
  double decoupled_ = 0;  ///< weight decay beside the gradient
};

void check_share(double value, const char* what) {
  if (!(value >= 0 && value < 1))
    throw ConfigError(
        fmt::format("optimiser: {} must be at least 0 and below 1, found {}", what, value));
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerSpec& spec) {
  if (!(spec.weight_decay >= 0) || !std::isfinite(spec.weight_decay)) {
    throw ConfigError(fmt::format(
        "optimiser: weight decay (--weight-decay) must be finite and not negative, found {}",
        spec.weight_decay));
  }
  if (!(spec.rate_factor >= 0) || !std::isfinite(spec.rate_factor)) {
    throw ConfigError(
        fmt::format("optimiser: the factor of a learning rate must be finite and not negative, "
                    "found {}",
                    spec.rate_factor));
  }
  if (spec.name == "sgd") {
    check_share(spec.momentum, "momentum (--momentum)");
    if (spec.nesterov && spec.momentum == 0)
      throw ConfigError("optimiser: nesterov (--nesterov) needs a momentum above 0");
    return std::make_unique<Sgd>(spec);
  }
  if (spec.name == "adam" || spec.name == "adamw") {
    if (spec.nesterov) {
      throw ConfigError(
          fmt::format("optimiser: nesterov (--nesterov) is for sgd, found {}", spec.name));
    }
    check_share(spec.beta1, "beta1");
    check_share(spec.beta2, "beta2");
    if (!(spec.epsilon > 0) || !std::isfinite(spec.epsilon)) {
      throw ConfigError(
          fmt::format("optimiser: epsilon must be finite and positive, found {}", spec.epsilon));
    }
    return std::make_unique<Adam>(spec);
  }
  throw ConfigError(
      fmt::format("unknown optimiser '{}' (--optimizer), expected sgd, adam or adamw", spec.name));
}

}  // namespace penstock::model
