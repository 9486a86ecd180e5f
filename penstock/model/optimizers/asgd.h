// Averaged stochastic gradient descent (Polyak and Juditsky 1992; the rates: Bottou 2012, section
// 5), as torch.optim has it under a constant learning rate. Differs: torch.optim takes the rate of
// the step before, we take that of the step; under a schedule the two differ by one step.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "penstock/model/optimizer_spec.h"
#include "penstock/model/optimizers/float_numbers.h"

namespace penstock::model::detail {

/// eta = rate / (1 + lambda * rate * (step - 1))^power;
/// weight = (1 - lambda * eta) * weight - eta * g;  the mean of the weights after `average_from`
/// steps, before them the newest weight.
struct AsgdFormula {
  static constexpr size_t kStates = 1;

  template <class Real>
  struct Coefficients {
    Coefficients(const OptimizerSpec& spec, double learning_rate, int64_t step)
        : decay(static_cast<Real>(spec.weight_decay)) {
      const double rate = learning_rate * spec.rate_factor;
      const auto before = static_cast<double>(step - 1);
      const double step_rate = rate / std::pow(1 + spec.lambda * rate * before, spec.power);
      const double share = 1 / std::max(1.0, before - spec.average_from);
      eta = static_cast<Real>(step_rate);
      kept = static_cast<Real>(1 - spec.lambda * step_rate);
      newest = static_cast<Real>(share);
      rest = static_cast<Real>(1 - share);
    }
    Real decay;
    Real eta;
    Real kept;    ///< of the weight before the step
    Real newest;  ///< the share of the newest weight in the mean, and of the mean before
    Real rest;
  };

  template <class Numbers, class Real>
  static void step(Numbers& weight, const Numbers& gradient, std::array<Numbers, kStates>& state,
                   const Coefficients<Real>& c) {
    const Numbers g = plus(gradient, weight, c.decay);
    scale_and_add(weight, c.kept, g, -c.eta);
    scale_and_add(state[0], c.rest, weight, c.newest);
  }
};

}  // namespace penstock::model::detail
