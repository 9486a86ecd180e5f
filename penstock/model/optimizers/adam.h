// Adam, AdamW (Loshchilov and Hutter 2019, algorithm 2) and both with the largest second moment so
// far (Reddi et al. 2018, algorithm 2), as torch.optim has them.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "penstock/model/optimizer_spec.h"
#include "penstock/model/optimizers/decay.h"
#include "penstock/model/optimizers/float_numbers.h"
#include "penstock/util/check.h"

namespace penstock::model::detail {

enum class Moment : uint8_t { Newest, Largest };

template <Decay kDecay, Moment kMoment = Moment::Newest>
struct AdamFormula {
  static constexpr size_t kStates = kMoment == Moment::Newest ? 2 : 3;

  template <class Real>
  struct Coefficients {
    Coefficients(const OptimizerSpec& spec, double learning_rate, int64_t step)
        : beta1(static_cast<Real>(spec.beta1)),
          rest1(static_cast<Real>(1 - spec.beta1)),
          beta2(static_cast<Real>(spec.beta2)),
          rest2(static_cast<Real>(1 - spec.beta2)),
          epsilon(static_cast<Real>(spec.epsilon)) {
      PENSTOCK_CHECK(step >= 1, step);
      const auto count = static_cast<double>(step);
      const double rate = learning_rate * spec.rate_factor;
      step_size = static_cast<Real>(rate / (1 - std::pow(spec.beta1, count)));
      root_scale = static_cast<Real>(1 / std::sqrt(1 - std::pow(spec.beta2, count)));
      decay = static_cast<Real>(kDecay == Decay::InGradient ? spec.weight_decay : 0);
      kept = static_cast<Real>(1 - rate * (kDecay == Decay::OfWeight ? spec.weight_decay : 0));
    }
    Real beta1;
    Real rest1;  ///< 1 - beta1, of which a float32 beta1 would leave 4 to 5 digits
    Real beta2;
    Real rest2;
    Real epsilon;
    Real step_size;
    Real root_scale;  ///< of the second moment: 1 / sqrt(1 - beta2^step)
    Real decay;       ///< added to the gradient (Adam)
    Real kept;        ///< of the weight before the step: 1 - rate * decay (AdamW), or 1
  };

  template <class Numbers, class Real>
  static void step(Numbers& weight, const Numbers& gradient, std::array<Numbers, kStates>& state,
                   const Coefficients<Real>& c) {
    const Numbers g = plus(gradient, weight, c.decay);
    scale_and_add(state[0], c.beta1, g, c.rest1);
    scale_and_add_product(state[1], c.beta2, g, g, c.rest2);
    if constexpr (kMoment == Moment::Largest) take_larger(state[2], state[1]);
    Numbers denominator = square_root(state[kStates - 1]);
    scale_and_shift(denominator, c.root_scale, c.epsilon);
    scale_and_add_quotient(weight, c.kept, state[0], denominator, -c.step_size);
  }
};

}  // namespace penstock::model::detail
