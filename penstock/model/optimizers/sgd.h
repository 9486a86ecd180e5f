// Stochastic gradient descent, with momentum and weight decay as torch.optim.SGD has them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "penstock/model/optimizer_spec.h"
#include "penstock/model/optimizers/float_numbers.h"

namespace penstock::model::detail {

enum class Momentum : uint8_t { None, Plain, Nesterov };

/// g = gradient + decay * weight;  momentum = m * momentum + g;
/// weight -= rate * momentum, or with Nesterov's rate * (g + m * momentum), or without rate * g.
template <Momentum kMomentum>
struct SgdFormula {
  static constexpr size_t kStates = kMomentum == Momentum::None ? 0 : 1;

  template <class Real>
  struct Coefficients {
    Coefficients(const OptimizerSpec& spec, double learning_rate, int64_t)
        : rate(static_cast<Real>(learning_rate * spec.rate_factor)),
          momentum(static_cast<Real>(spec.momentum)),
          decay(static_cast<Real>(spec.weight_decay)) {}
    Real rate;
    Real momentum;
    Real decay;
  };

  template <class Numbers, class Real>
  static void step(Numbers& weight, const Numbers& gradient, std::array<Numbers, kStates>& state,
                   const Coefficients<Real>& c) {
    Numbers direction = plus(gradient, weight, c.decay);
    if constexpr (kMomentum != Momentum::None) {
      scale_and_add(state[0], c.momentum, direction, Real{1});
      direction =
          kMomentum == Momentum::Nesterov ? plus(direction, state[0], c.momentum) : state[0];
    }
    scale_and_add(weight, Real{1}, direction, -c.rate);
  }
};

}  // namespace penstock::model::detail
