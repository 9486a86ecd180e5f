#include "penstock/model/optimizer.h"

#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/model/optimizers/adagrad.h"
#include "penstock/model/optimizers/adam.h"
#include "penstock/model/optimizers/asgd.h"
#include "penstock/model/optimizers/formula_optimizer.h"
#include "penstock/model/optimizers/lion.h"
#include "penstock/model/optimizers/nadam.h"
#include "penstock/model/optimizers/rms_prop.h"
#include "penstock/model/optimizers/sgd.h"
#include "penstock/model/optimizers/whole_optimizer.h"
#include "penstock/model/torch_compat.h"
#include "penstock/util/error.h"

namespace penstock::model {
namespace detail {

template <>
bool step_in_one_operation<SgdFormula<Momentum::Plain>>(
    const WeightLists& lists, const SgdFormula<Momentum::Plain>::Coefficients<double>& c) {
  return lists.in_place && step_sgd_together(lists.weights.tensors, lists.gradients.tensors,
                                             lists.state[0].tensors, c.rate, c.momentum, c.decay,
                                             /*nesterov=*/false);
}

template <>
bool step_in_one_operation<SgdFormula<Momentum::Nesterov>>(
    const WeightLists& lists, const SgdFormula<Momentum::Nesterov>::Coefficients<double>& c) {
  return lists.in_place && step_sgd_together(lists.weights.tensors, lists.gradients.tensors,
                                             lists.state[0].tensors, c.rate, c.momentum, c.decay,
                                             /*nesterov=*/true);
}

}  // namespace detail

namespace {

using detail::AdamFormula, detail::Decay, detail::Divisor, detail::Moment, detail::Momentum,
    detail::NAdamFormula, detail::RmsPropFormula, detail::SgdFormula;
using Made = std::unique_ptr<Optimizer>;

/// Climbs by descending along gradients of the other sign.
class Climbing final : public Optimizer {
 public:
  explicit Climbing(Made descending)
      : Optimizer(descending->spec()), descending_(std::move(descending)) {}

  void step(const at::Tensor& weight, const at::Tensor& gradient, at::Tensor& new_weight,
            std::span<at::Tensor> state, const StepContext& context) const override {
    descending_->step(weight, gradient.data().neg(), new_weight, state, context);
  }
  void step_together(std::span<WeightStep> weights, const StepContext& context) const override {
    std::vector<WeightStep> others(weights.begin(), weights.end());
    for (WeightStep& other : others) other.gradient = other.gradient.data().neg();
    descending_->step_together(others, context);
  }

 private:
  Made descending_;
};

/// Keeps a running mean of the steps as the last state: mean = decay * mean + (1 - decay) * step.
class KeepingMeanStep final : public Optimizer {
 public:
  KeepingMeanStep(const OptimizerSpec& spec, Made stepping)
      : Optimizer(spec), stepping_(std::move(stepping)) {}

  void step(const at::Tensor& weight, const at::Tensor& gradient, at::Tensor& new_weight,
            std::span<at::Tensor> state, const StepContext& context) const override {
    const at::Tensor before = copied(weight);
    stepping_->step(weight, gradient, new_weight, state.first(state.size() - 1), context);
    keep(state.back(), before, new_weight, context);
  }
  void step_together(std::span<WeightStep> weights, const StepContext& context) const override {
    std::vector<WeightStep> own(weights.begin(), weights.end());
    std::vector<at::Tensor> before;
    for (WeightStep& one : own) {
      before.push_back(copied(one.weight));
      one.state.pop_back();
    }
    stepping_->step_together(own, context);
    for (size_t i = 0; i < own.size(); ++i)
      keep(weights[i].state.back(), before[i], weights[i].new_weight, context);
  }

 private:
  static at::Tensor copied(const at::Tensor& weight) { return weight.data().clone(); }
  static void keep(const at::Tensor& mean, const at::Tensor& before, const at::Tensor& after,
                   const StepContext& context) {
    const c10::AutoGradMode no_grad(false);
    mean.data().mul_(context.mean_decay).add_(after.data() - before, 1 - context.mean_decay);
  }

  Made stepping_;
};

/// Keeps a running mean of the weight as the last state: mean += share * (new weight - mean), as
/// torch.optim.swa_utils.AveragedModel does.
class Averaging final : public Optimizer {
 public:
  Averaging(const OptimizerSpec& spec, Made stepping)
      : Optimizer(spec), stepping_(std::move(stepping)) {}

  void step(const at::Tensor& weight, const at::Tensor& gradient, at::Tensor& new_weight,
            std::span<at::Tensor> state, const StepContext& context) const override {
    stepping_->step(weight, gradient, new_weight, state.first(state.size() - 1), context);
    move(state.back(), new_weight, context.average_share);
  }
  void step_together(std::span<WeightStep> weights, const StepContext& context) const override {
    std::vector<WeightStep> own(weights.begin(), weights.end());
    for (WeightStep& one : own) one.state.pop_back();
    stepping_->step_together(own, context);
    for (WeightStep& one : weights) move(one.state.back(), one.new_weight, context.average_share);
  }

 private:
  static void move(const at::Tensor& mean, const at::Tensor& weight, double share) {
    const c10::AutoGradMode no_grad(false);
    if (share == 1)
      mean.data().copy_(weight.data());
    else
      mean.data().lerp_(weight.data(), share);
  }

  Made stepping_;
};

/// What Muon and SOAP leave to AdamW: of their states two are AdamW's, the others have no numbers.
class AdamWOfTheRest final : public Optimizer {
 public:
  /// `first`: the place of AdamW's states.
  AdamWOfTheRest(const OptimizerSpec& spec, size_t first)
      : Optimizer(spec), first_(first), adamw_(adamw(spec)) {}

  void step(const at::Tensor& weight, const at::Tensor& gradient, at::Tensor& new_weight,
            std::span<at::Tensor> state, const StepContext& context) const override {
    adamw_.step(weight, gradient, new_weight, state.subspan(first_, kStates), context);
  }
  void step_together(std::span<WeightStep> weights, const StepContext& context) const override {
    std::vector<WeightStep> own(weights.begin(), weights.end());
    for (WeightStep& one : own) {
      const std::span<at::Tensor> state = std::span(one.state).subspan(first_, kStates);
      one.state = std::vector<at::Tensor>(state.begin(), state.end());
    }
    adamw_.step_together(own, context);
  }

 private:
  static constexpr size_t kStates = 2;

  static OptimizerSpec adamw(OptimizerSpec spec) {
    spec.rate_factor *= spec.adamw_rate;
    return spec;
  }

  size_t first_;
  detail::FormulaOptimizer<AdamFormula<Decay::OfWeight>> adamw_;
};

template <class Formula>
Made make(const OptimizerSpec& spec) {
  return std::make_unique<detail::FormulaOptimizer<Formula>>(spec);
}

template <class Whole>
Made make_whole(const OptimizerSpec& spec) {
  return std::make_unique<Whole>(spec);
}

Made make_sgd(const OptimizerSpec& spec) {
  if (spec.momentum == 0) return make<SgdFormula<Momentum::None>>(spec);
  return spec.nesterov ? make<SgdFormula<Momentum::Nesterov>>(spec)
                       : make<SgdFormula<Momentum::Plain>>(spec);
}

template <Decay kDecay>
Made make_adam(const OptimizerSpec& spec) {
  return spec.amsgrad ? make<AdamFormula<kDecay, Moment::Largest>>(spec)
                      : make<AdamFormula<kDecay>>(spec);
}

template <bool kMomentum>
Made make_rms_prop(const OptimizerSpec& spec) {
  return spec.centered ? make<RmsPropFormula<kMomentum, Divisor::Deviation>>(spec)
                       : make<RmsPropFormula<kMomentum, Divisor::MeanSquare>>(spec);
}

Made make_any_rms_prop(const OptimizerSpec& spec) {
  return spec.momentum == 0 ? make_rms_prop<false>(spec) : make_rms_prop<true>(spec);
}

void check_whole(std::string_view name, double value) {
  if (value == std::floor(value)) return;
  throw ConfigError(fmt::format("optimiser: {} must be a whole number, found {}", name, value));
}

Made make_muon(const OptimizerSpec& spec) {
  check_whole("iterations", spec.iterations);
  if (spec.as_matrix) return make_whole<detail::Muon>(spec);
  return std::make_unique<AdamWOfTheRest>(spec, 1);
}

Made make_soap(const OptimizerSpec& spec) {
  check_whole("basis_every", spec.basis_every);
  if (spec.as_matrix) return make_whole<detail::Soap>(spec);
  return std::make_unique<AdamWOfTheRest>(spec, 0);
}

/// In the order of the rows.
constexpr std::array<Made (*)(const OptimizerSpec&), kOptimizers.size()> kMakers = {
    make_sgd,
    make_adam<Decay::InGradient>,
    make_adam<Decay::OfWeight>,
    make<NAdamFormula<Decay::InGradient>>,
    make<NAdamFormula<Decay::OfWeight>>,
    make_any_rms_prop,
    make<detail::AdagradFormula>,
    make<detail::LionFormula>,
    make<detail::AsgdFormula>,
    make_whole<detail::Lamb>,
    make_whole<detail::Lars>,
    make_whole<detail::Adafactor>,
    make_muon,
    make_soap};

void check_parameter(const OptimizerSpec& spec, const OptimizerParameter& parameter) {
  const std::string refusal = parameter.refusal(spec.*parameter.value);
  if (!refusal.empty()) throw ConfigError("optimiser: " + refusal);
}

/// Flags of other optimisers.
void check_flags(const OptimizerSpec& spec) {
  for (const OptimizerTraits& other : kOptimizers) {
    for (const OptimizerFlag& flag : other.flags) {
      if (!(spec.*flag.value) || takes(spec.kind, flag.value)) continue;
      throw ConfigError(fmt::format("optimiser: {} has no {}", to_string(spec.kind), flag.name));
    }
  }
}

}  // namespace

std::vector<std::string> Optimizer::state_names() const {
  std::vector<std::string> names;
  for (const OptimizerState& state : states(spec_)) names.emplace_back(state.name);
  return names;
}

std::vector<at::Tensor> Optimizer::new_state(const at::Tensor& weight) const {
  std::vector<at::Tensor> tensors;
  for (const OptimizerState& state : states(spec_)) {
    const double initial = state.initial == nullptr ? 0 : spec_.*state.initial;
    // In the weight's layout where it has the weight's shape.
    const at::Tensor plain = weight.detach();
    if (state.begins_as_weight) {
      tensors.push_back(plain.clone());
      continue;
    }
    const std::vector<int64_t> shape = state_shape(spec_, state, plain.sizes().vec());
    tensors.push_back(plain.sizes() == at::IntArrayRef(shape)
                          ? at::full_like(plain, initial)
                          : at::full(shape, initial, plain.options()));
  }
  return tensors;
}

Made make_optimizer(const OptimizerSpec& spec) {
  for (const OptimizerParameter& parameter : detail::kOfAll) check_parameter(spec, parameter);
  for (const OptimizerParameter& parameter : traits(spec.kind).parameters)
    check_parameter(spec, parameter);
  check_flags(spec);
  if (spec.nesterov && spec.momentum == 0)
    throw ConfigError("optimiser: Nesterov's step needs a momentum above 0");
  OptimizerSpec stepping = spec;
  stepping.mean_step = false;
  stepping.averages = false;
  Made made = kMakers[static_cast<size_t>(spec.kind)](stepping);
  if (spec.maximize) made = std::make_unique<Climbing>(std::move(made));
  if (spec.mean_step) made = std::make_unique<KeepingMeanStep>(spec, std::move(made));
  if (spec.averages) made = std::make_unique<Averaging>(spec, std::move(made));
  return made;
}

}  // namespace penstock::model
