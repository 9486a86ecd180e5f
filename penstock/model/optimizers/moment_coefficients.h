// What steps by two moments share: the decays of the averages, and the weight's own.
#pragma once

#include <cmath>
#include <cstdint>

#include "penstock/model/optimizer_spec.h"
#include "penstock/model/optimizers/decay.h"
#include "penstock/util/check.h"

namespace penstock::model::detail {

template <Decay kDecay, class Real>
struct MomentCoefficients {
  /// `step`: from 1.
  MomentCoefficients(const OptimizerSpec& spec, double learning_rate, int64_t step)
      : beta1(static_cast<Real>(spec.beta1)),
        rest1(static_cast<Real>(1 - spec.beta1)),
        beta2(static_cast<Real>(spec.beta2)),
        rest2(static_cast<Real>(1 - spec.beta2)),
        epsilon(static_cast<Real>(spec.epsilon)),
        rate(learning_rate * spec.rate_factor) {
    PENSTOCK_CHECK(step >= 1, step);
    const auto count = static_cast<double>(step);
    root_scale = static_cast<Real>(1 / std::sqrt(1 - std::pow(spec.beta2, count)));
    decay = static_cast<Real>(kDecay == Decay::InGradient ? spec.weight_decay : 0);
    kept = static_cast<Real>(1 - rate * (kDecay == Decay::OfWeight ? spec.weight_decay : 0));
  }
  Real beta1;
  Real rest1;  ///< 1 - beta1, of which a float32 beta1 would leave 4 to 5 digits
  Real beta2;
  Real rest2;
  Real epsilon;
  double rate;      ///< of the step, with the weight's factor
  Real root_scale;  ///< of the second moment: 1 / sqrt(1 - beta2^step)
  Real decay;       ///< added to the gradient, where it is not taken from the weight
  Real kept;        ///< of the weight before the step: 1 - rate * decay, or 1
};

}  // namespace penstock::model::detail
