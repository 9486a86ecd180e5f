// An optimiser out of a formula: the example of docs/extending.md.
#include "penstock/model/optimizers/formula_optimizer.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cmath>

#include "penstock/model/optimizers/float_numbers.h"
#include "penstock/model/optimizers/plain_loop.h"

namespace penstock::model::detail {

/// torch.optim.RMSprop without momentum; its alpha is the spec's beta2.
struct RmsPropFormula {
  static constexpr size_t kStates = 1;

  template <class Real>
  struct Coefficients {
    Coefficients(const OptimizerSpec& spec, double learning_rate, int64_t)
        : rate(static_cast<Real>(learning_rate * spec.rate_factor)),
          alpha(static_cast<Real>(spec.beta2)),
          epsilon(static_cast<Real>(spec.epsilon)),
          decay(static_cast<Real>(spec.weight_decay)) {}
    Real rate;
    Real alpha;
    Real epsilon;
    Real decay;
  };

  template <class Numbers, class Real>
  static void step(Numbers& weight, const Numbers& gradient, std::array<Numbers, kStates>& state,
                   const Coefficients<Real>& c) {
    const Numbers g = plus(gradient, weight, c.decay);
    scale_and_add_product(state[0], c.alpha, g, g, 1 - c.alpha);
    Numbers denominator = square_root(state[0]);
    scale_and_shift(denominator, Real{1}, c.epsilon);
    scale_and_add_quotient(weight, Real{1}, g, denominator, -c.rate);
  }
};

namespace {

/// Two steps of each kind from the same numbers.
TEST(FormulaOptimizer, AFormulaIsAStepOfOneWeightAndOfMany) {
  const OptimizerSpec spec{.weight_decay = 0.1, .beta2 = 0.9, .epsilon = 1e-3};
  const FormulaOptimizer<RmsPropFormula> optimizer(spec);
  at::Tensor weight = at::full({5}, 2.0);
  std::vector<at::Tensor> state = {at::zeros({5})};
  WeightStep many{at::full({5}, 2.0), at::full({5}, 0.5), at::full({5}, 2.0), {at::zeros({5})}};
  double expected = 2;
  double square = 0;
  for (int64_t number = 1; number <= 2; ++number) {
    const StepContext context{.learning_rate = 0.1, .step = number};
    optimizer.step(weight, at::full({5}, 0.5), weight, state, context);
    many.new_weight = many.weight;
    optimizer.step_together({&many, 1}, context);
    const double g = 0.5 + 0.1 * expected;
    square = 0.9 * square + 0.1 * g * g;
    expected -= 0.1 * g / (std::sqrt(square) + 1e-3);
  }
  EXPECT_TRUE(at::allclose(weight, at::full({5}, expected), 0, 1e-6));
  EXPECT_TRUE(at::allclose(many.weight, at::full({5}, expected), 0, 1e-6));
}

}  // namespace
}  // namespace penstock::model::detail
