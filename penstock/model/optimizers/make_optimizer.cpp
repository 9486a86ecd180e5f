#include "penstock/model/optimizer.h"

#include <fmt/format.h>

#include <cmath>

#include "penstock/model/optimizers/adam.h"
#include "penstock/model/optimizers/formula_optimizer.h"
#include "penstock/model/optimizers/sgd.h"
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

using detail::AdamFormula, detail::Decay, detail::FormulaOptimizer, detail::Momentum,
    detail::SgdFormula;
using Made = std::unique_ptr<Optimizer>;

void check_share(double value, const char* what) {
  if (!(value >= 0 && value < 1))
    throw ConfigError(
        fmt::format("optimiser: {} must be at least 0 and below 1, found {}", what, value));
}

void check_common(const OptimizerSpec& spec) {
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
}

Made make_sgd(const OptimizerSpec& spec) {
  check_share(spec.momentum, "momentum (--momentum)");
  if (spec.nesterov && spec.momentum == 0)
    throw ConfigError("optimiser: nesterov (--nesterov) needs a momentum above 0");
  if (spec.momentum == 0)
    return std::make_unique<FormulaOptimizer<SgdFormula<Momentum::None>>>(
        spec, std::array<std::string_view, 0>());
  constexpr std::array<std::string_view, 1> kStates = {"momentum"};
  if (spec.nesterov)
    return std::make_unique<FormulaOptimizer<SgdFormula<Momentum::Nesterov>>>(spec, kStates);
  return std::make_unique<FormulaOptimizer<SgdFormula<Momentum::Plain>>>(spec, kStates);
}

template <Decay kDecay>
Made make_adam(const OptimizerSpec& spec) {
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
  constexpr std::array<std::string_view, 2> kStates = {"exp_avg", "exp_avg_sq"};
  return std::make_unique<FormulaOptimizer<AdamFormula<kDecay>>>(spec, kStates);
}

}  // namespace

Made make_optimizer(const OptimizerSpec& spec) {
  check_common(spec);
  if (spec.name == "sgd") return make_sgd(spec);
  if (spec.name == "adam") return make_adam<Decay::InGradient>(spec);
  if (spec.name == "adamw") return make_adam<Decay::OfWeight>(spec);
  throw ConfigError(
      fmt::format("unknown optimiser '{}' (--optimizer), expected sgd, adam or adamw", spec.name));
}

}  // namespace penstock::model
