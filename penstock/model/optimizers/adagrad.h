// Adagrad (Duchi et al. 2011, figure 1, with a diagonal), as torch.optim has it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "penstock/model/optimizer_spec.h"
#include "penstock/model/optimizers/float_numbers.h"

namespace penstock::model::detail {

/// sum += g^2;  weight -= rate / (1 + rate_decay * (step - 1)) * g / (sqrt(sum) + epsilon)
struct AdagradFormula {
  static constexpr size_t kStates = 1;

  template <class Real>
  struct Coefficients {
    Coefficients(const OptimizerSpec& spec, double learning_rate, int64_t step)
        : rate(static_cast<Real>(learning_rate * spec.rate_factor /
                                 (1 + static_cast<double>(step - 1) * spec.rate_decay))),
          epsilon(static_cast<Real>(spec.epsilon)),
          decay(static_cast<Real>(spec.weight_decay)) {}
    Real rate;
    Real epsilon;
    Real decay;
  };

  template <class Numbers, class Real>
  static void step(Numbers& weight, const Numbers& gradient, std::array<Numbers, kStates>& state,
                   const Coefficients<Real>& c) {
    const Numbers g = plus(gradient, weight, c.decay);
    scale_and_add_product(state[0], Real{1}, g, g, Real{1});
    Numbers denominator = square_root(state[0]);
    scale_and_shift(denominator, Real{1}, c.epsilon);
    scale_and_add_quotient(weight, Real{1}, g, denominator, -c.rate);
  }
};

}  // namespace penstock::model::detail
