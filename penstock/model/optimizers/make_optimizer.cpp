#include "penstock/model/optimizer.h"

#include <fmt/format.h>

#include <array>
#include <string>

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

using detail::AdamFormula, detail::Decay, detail::Momentum, detail::SgdFormula;
using Made = std::unique_ptr<Optimizer>;

template <class Formula>
Made make(const OptimizerSpec& spec) {
  return std::make_unique<detail::FormulaOptimizer<Formula>>(spec);
}

Made make_sgd(const OptimizerSpec& spec) {
  if (spec.momentum == 0) return make<SgdFormula<Momentum::None>>(spec);
  return spec.nesterov ? make<SgdFormula<Momentum::Nesterov>>(spec)
                       : make<SgdFormula<Momentum::Plain>>(spec);
}

/// In the order of the rows.
constexpr std::array<Made (*)(const OptimizerSpec&), kOptimizers.size()> kMakers = {
    make_sgd, make<AdamFormula<Decay::InGradient>>, make<AdamFormula<Decay::OfWeight>>};

void check_parameter(const OptimizerSpec& spec, const OptimizerParameter& parameter) {
  const std::string refusal = parameter.refusal(spec.*parameter.value);
  if (!refusal.empty()) throw ConfigError("optimiser: " + refusal);
}

}  // namespace

Made make_optimizer(const OptimizerSpec& spec) {
  const OptimizerTraits& row = traits(spec.kind);
  for (const OptimizerParameter& parameter : detail::kOfAll) check_parameter(spec, parameter);
  for (const OptimizerParameter& parameter : row.parameters) check_parameter(spec, parameter);
  if (spec.nesterov && !row.takes_nesterov)
    throw ConfigError(fmt::format("optimiser: {} has no Nesterov momentum", row.name));
  if (spec.nesterov && spec.momentum == 0)
    throw ConfigError("optimiser: Nesterov's step needs a momentum above 0");
  return kMakers[static_cast<size_t>(spec.kind)](spec);
}

}  // namespace penstock::model
