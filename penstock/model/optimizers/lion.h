// Lion (Chen et al. 2023, algorithm 2).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "penstock/model/optimizer_spec.h"
#include "penstock/model/optimizers/float_numbers.h"

namespace penstock::model::detail {

/// weight -= rate * (sign(beta1 * average + (1 - beta1) * g) + decay * weight);
/// average = beta2 * average + (1 - beta2) * g
struct LionFormula {
  static constexpr size_t kStates = 1;

  template <class Real>
  struct Coefficients {
    Coefficients(const OptimizerSpec& spec, double learning_rate, int64_t)
        : beta1(static_cast<Real>(spec.beta1)),
          rest1(static_cast<Real>(1 - spec.beta1)),
          beta2(static_cast<Real>(spec.beta2)),
          rest2(static_cast<Real>(1 - spec.beta2)),
          rate(static_cast<Real>(learning_rate * spec.rate_factor)),
          kept(static_cast<Real>(1 - learning_rate * spec.rate_factor * spec.weight_decay)) {}
    Real beta1;
    Real rest1;
    Real beta2;
    Real rest2;
    Real rate;
    Real kept;  ///< of the weight before the step
  };

  template <class Numbers, class Real>
  static void step(Numbers& weight, const Numbers& gradient, std::array<Numbers, kStates>& state,
                   const Coefficients<Real>& c) {
    const Numbers direction = sign_of(sum_of(state[0], c.beta1, gradient, c.rest1));
    scale_and_add(weight, c.kept, direction, -c.rate);
    scale_and_add(state[0], c.beta2, gradient, c.rest2);
  }
};

}  // namespace penstock::model::detail
