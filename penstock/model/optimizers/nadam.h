// NAdam (Dozat 2016, algorithm 2, with the momentum's schedule of its section 3.2) as torch.optim
// has it, and with decoupled weight decay.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "penstock/model/optimizer_spec.h"
#include "penstock/model/optimizers/decay.h"
#include "penstock/model/optimizers/float_numbers.h"
#include "penstock/model/optimizers/moment_coefficients.h"

namespace penstock::model::detail {

/// The momentum of a step, from 1.
inline double nadam_momentum(const OptimizerSpec& spec, double step) {
  return spec.beta1 * (1 - 0.5 * std::pow(0.96, step * spec.momentum_decay));
}

/// The product of the momenta of all steps up to this one; 0 as soon as 1 minus it is 1. Steps
/// usually ask one after the other: each thread goes on from its last product.
inline double nadam_product(const OptimizerSpec& spec, int64_t step) {
  constexpr double kNothing = 1e-18;
  struct Known {
    double beta1 = 0;
    double decay = 0;
    int64_t step = 0;
    double product = 1;
  };
  thread_local Known known;
  if (known.beta1 != spec.beta1 || known.decay != spec.momentum_decay || known.step > step)
    known = {spec.beta1, spec.momentum_decay, 0, 1};
  while (known.step < step && known.product > kNothing)
    known.product *= nadam_momentum(spec, static_cast<double>(++known.step));
  return known.product > kNothing ? known.product : 0;
}

template <Decay kDecay>
struct NAdamFormula {
  static constexpr size_t kStates = 2;

  template <class Real>
  struct Coefficients : MomentCoefficients<kDecay, Real> {
    Coefficients(const OptimizerSpec& spec, double learning_rate, int64_t step)
        : MomentCoefficients<kDecay, Real>(spec, learning_rate, step) {
      const auto count = static_cast<double>(step);
      const double product = nadam_product(spec, step);
      const double next = nadam_momentum(spec, count + 1);
      of_gradient =
          static_cast<Real>(-this->rate * (1 - nadam_momentum(spec, count)) / (1 - product));
      of_average = static_cast<Real>(-this->rate * next / (1 - product * next));
    }
    Real of_gradient;  ///< what the step adds of the gradient, and of its average
    Real of_average;
  };

  template <class Numbers, class Real>
  static void step(Numbers& weight, const Numbers& gradient, std::array<Numbers, kStates>& state,
                   const Coefficients<Real>& c) {
    const Numbers g = plus(gradient, weight, c.decay);
    scale_and_add(state[0], c.beta1, g, c.rest1);
    scale_and_add_product(state[1], c.beta2, g, g, c.rest2);
    Numbers denominator = square_root(state[1]);
    scale_and_shift(denominator, c.root_scale, c.epsilon);
    const Numbers direction = sum_of(g, c.of_gradient, state[0], c.of_average);
    scale_and_add_quotient(weight, c.kept, direction, denominator, Real{1});
  }
};

}  // namespace penstock::model::detail
