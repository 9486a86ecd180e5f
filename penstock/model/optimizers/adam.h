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
#include "penstock/model/optimizers/moment_coefficients.h"

namespace penstock::model::detail {

enum class Moment : uint8_t { Newest, Largest };

template <Decay kDecay, Moment kMoment = Moment::Newest>
struct AdamFormula {
  static constexpr size_t kStates = kMoment == Moment::Newest ? 2 : 3;

  template <class Real>
  struct Coefficients : MomentCoefficients<kDecay, Real> {
    Coefficients(const OptimizerSpec& spec, double learning_rate, int64_t step)
        : MomentCoefficients<kDecay, Real>(spec, learning_rate, step),
          step_size(static_cast<Real>(this->rate /
                                      (1 - std::pow(spec.beta1, static_cast<double>(step))))) {}
    Real step_size;
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
