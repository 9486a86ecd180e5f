// An optimiser out of a formula: the example of docs/extending.md.
#include "penstock/model/optimizers/formula_optimizer.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "penstock/model/optimizers/float_numbers.h"
#include "penstock/model/optimizers/plain_loop.h"

namespace penstock::model::detail {

/// Signum (Bernstein et al. 2018, algorithm 2): SGD along the sign of the momentum.
struct SignumFormula {
  static constexpr size_t kStates = 1;

  template <class Real>
  struct Coefficients {
    Coefficients(const OptimizerSpec& spec, double learning_rate, int64_t)
        : rate(static_cast<Real>(learning_rate * spec.rate_factor)),
          momentum(static_cast<Real>(spec.momentum)),
          rest(static_cast<Real>(1 - spec.momentum)),
          decay(static_cast<Real>(spec.weight_decay)) {}
    Real rate;
    Real momentum;
    Real rest;
    Real decay;
  };

  template <class Numbers, class Real>
  static void step(Numbers& weight, const Numbers& gradient, std::array<Numbers, kStates>& state,
                   const Coefficients<Real>& c) {
    scale_and_add(state[0], c.momentum, plus(gradient, weight, c.decay), c.rest);
    scale_and_add(weight, Real{1}, sign_of(state[0]), -c.rate);
  }
};

namespace {

/// Two steps of each kind from the same numbers; the momentum changes its sign between them.
TEST(FormulaOptimizer, AFormulaIsAStepOfOneWeightAndOfMany) {
  const OptimizerSpec spec{.momentum = 0.5, .weight_decay = 0.1};
  const FormulaOptimizer<SignumFormula> optimizer(spec);
  at::Tensor weight = at::full({5}, 2.0);
  std::vector<at::Tensor> state = optimizer.new_state(weight);
  WeightStep many{at::full({5}, 2.0), at::full({5}, 0.5), {}, optimizer.new_state(weight)};
  const double expected[] = {1.9, 2.0};
  for (const int64_t number : {1, 2}) {
    const StepContext context{.learning_rate = 0.1, .step = number};
    const at::Tensor gradient = at::full({5}, number == 1 ? 0.5 : -1.0);
    optimizer.step(weight, gradient, weight, state, context);
    many.gradient = gradient;
    many.new_weight = many.weight;
    optimizer.step_together({&many, 1}, context);
    EXPECT_TRUE(at::allclose(weight, at::full({5}, expected[number - 1]), 0, 1e-6));
    EXPECT_TRUE(at::allclose(many.weight, at::full({5}, expected[number - 1]), 0, 1e-6));
  }
}

}  // namespace
}  // namespace penstock::model::detail
