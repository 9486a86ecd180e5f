// RMSprop (Hinton 2012, lecture 6e; centred: Graves 2013, equations 38 to 41), as torch.optim has
// it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "penstock/model/optimizer_spec.h"
#include "penstock/model/optimizers/float_numbers.h"

namespace penstock::model::detail {

/// What the gradient is divided by: the root of its mean square, or its deviation.
enum class Divisor : uint8_t { MeanSquare, Deviation };

/// square = alpha * square + (1 - alpha) * g^2;  direction = g / (sqrt(square) + epsilon), or the
/// momentum of such directions;  weight -= rate * direction.
template <bool kMomentum, Divisor kDivisor>
struct RmsPropFormula {
  static constexpr bool kCentred = kDivisor == Divisor::Deviation;
  static constexpr size_t kStates = 1 + (kMomentum ? 1 : 0) + (kCentred ? 1 : 0);

  template <class Real>
  struct Coefficients {
    Coefficients(const OptimizerSpec& spec, double learning_rate, int64_t)
        : rate(static_cast<Real>(learning_rate * spec.rate_factor)),
          alpha(static_cast<Real>(spec.alpha)),
          rest(static_cast<Real>(1 - spec.alpha)),
          epsilon(static_cast<Real>(spec.epsilon)),
          momentum(static_cast<Real>(spec.momentum)),
          decay(static_cast<Real>(spec.weight_decay)) {}
    Real rate;
    Real alpha;
    Real rest;
    Real epsilon;
    Real momentum;
    Real decay;
  };

  template <class Numbers, class Real>
  static void step(Numbers& weight, const Numbers& gradient, std::array<Numbers, kStates>& state,
                   const Coefficients<Real>& c) {
    const Numbers g = plus(gradient, weight, c.decay);
    scale_and_add_product(state[0], c.alpha, g, g, c.rest);
    if constexpr (kCentred) scale_and_add(state[kStates - 1], c.alpha, g, c.rest);
    Numbers denominator =
        kCentred ? root_of_difference(state[0], state[kStates - 1]) : square_root(state[0]);
    scale_and_shift(denominator, Real{1}, c.epsilon);
    if constexpr (kMomentum) {
      scale_and_add_quotient(state[1], c.momentum, g, denominator, Real{1});
      scale_and_add(weight, Real{1}, state[1], -c.rate);
    } else {
      scale_and_add_quotient(weight, Real{1}, g, denominator, -c.rate);
    }
  }
};

}  // namespace penstock::model::detail
