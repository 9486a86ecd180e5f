#include "penstock/model/optimizers/next_step.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "penstock/model/optimizer_spec.h"
#include "penstock/util/error.h"

namespace penstock::model {
namespace {

/// Two steps at a rate of 0.1 with the gradients (0.5, -1) and (0.25, 0.5) from (1, -2), and what
/// is expected three steps later.
at::Tensor three_steps_later(const OptimizerSpec& spec) {
  const auto optimizer = make_optimizer(spec);
  at::Tensor weight = at::tensor({1.0F, -2.0F});
  std::vector<at::Tensor> state = optimizer->new_state(weight);
  const std::vector<at::Tensor> gradients = {at::tensor({0.5F, -1.0F}), at::tensor({0.25F, 0.5F})};
  for (int64_t step = 1; step <= 2; ++step) {
    optimizer->step(weight, gradients[static_cast<size_t>(step - 1)], weight, state,
                    {.learning_rate = 0.1, .step = step});
  }
  return moved_ahead(*optimizer, weight, state, {.learning_rate = 0.1, .step = 2}, 3);
}

void expect_near(const at::Tensor& found, std::vector<double> expected) {
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(found[static_cast<int64_t>(i)].item<double>(), expected[i], 1e-6);
}

// The states are those of torch.optim 2.13; with them, in Python:
//   w - 3 * 0.1 * momentum_buffer                               (SGD, RMSprop)
//   w - 3 * 0.1 * (m / (1 - 0.9**2)) / (sqrt(v / (1 - 0.999**2)) + 1e-8) [- 3 * 0.1 * 0.01 * w]
TEST(NextStep, MovesAlongTheStateOfTorchsOptimisers) {
  expect_near(three_steps_later(usual_spec(OptimizerKind::Sgd)), {0.67, -1.74});
  expect_near(three_steps_later(usual_spec(OptimizerKind::Adam)), {0.5271282196, -1.7934651375});
  OptimizerSpec adamw = usual_spec(OptimizerKind::AdamW);
  adamw.weight_decay = 0.01;
  expect_near(three_steps_later(adamw), {0.5228145123, -1.7839587927});
  OptimizerSpec rms_prop = usual_spec(OptimizerKind::RmsProp);
  rms_prop.momentum = 0.9;
  expect_near(three_steps_later(rms_prop), {-5.3960518837, 0.8039466739});
}

// m = 0.99 * 0.01 * (0.5, -1) + 0.01 * (0.25, 0.5), signs (+, -). Two steps of lion from (1, -2)
// go along the signs of (0.5, -1) and of 0.9 m + 0.1 g = (+, +): (0.8, -2).
TEST(NextStep, LionGoesAlongTheSigns) {
  expect_near(three_steps_later(usual_spec(OptimizerKind::Lion)), {0.5, -1.7});
}

TEST(NextStep, ARateOfItsOwnCounts) {
  OptimizerSpec half = usual_spec(OptimizerKind::Sgd);
  half.rate_factor = 0.5;
  // Momenta 0.5, -1 and 0.7, -0.4: (1, -2) - 0.05 * (1.2, -1.4) - 3 * 0.05 * (0.7, -0.4).
  expect_near(three_steps_later(half), {0.835, -1.87});
}

TEST(NextStep, WithoutAStepBeforeNothingMoves) {
  const auto adam = make_optimizer(usual_spec(OptimizerKind::Adam));
  const at::Tensor weight = at::tensor({1.0F, -2.0F});
  const std::vector<at::Tensor> state = adam->new_state(weight);
  const at::Tensor moved = moved_ahead(*adam, weight, state, {.learning_rate = 0.1, .step = 0}, 3);
  EXPECT_TRUE(at::equal(moved, weight));
  EXPECT_FALSE(moved.is_alias_of(weight));
}

TEST(NextStep, OptimisersWithoutAMeanOfGradientsSayNothing) {
  OptimizerSpec plain = usual_spec(OptimizerKind::Sgd);
  plain.momentum = 0;
  EXPECT_FALSE(says_next_step(plain));
  EXPECT_FALSE(says_next_step(usual_spec(OptimizerKind::RmsProp)));
  EXPECT_FALSE(says_next_step(usual_spec(OptimizerKind::Muon)));
  EXPECT_FALSE(says_next_step(usual_spec(OptimizerKind::Adagrad)));
  EXPECT_EQ(next_step_names(),
            "sgd with momentum, adam, adamw, nadam, nadamw, rmsprop with momentum, lion");
}

// mean = 0.5 * mean + 0.5 * step: steps of SGD are -0.1 * (0.5, -1) and -0.1 * (0.7, -0.4).
TEST(NextStep, AMeanOfStepsIsKeptWhereItIsAskedFor) {
  OptimizerSpec spec = usual_spec(OptimizerKind::Sgd);
  spec.mean_step = true;
  const auto optimizer = make_optimizer(spec);
  EXPECT_EQ(optimizer->state_names(), (std::vector<std::string>{"momentum", "mean_step"}));
  at::Tensor weight = at::tensor({1.0F, -2.0F});
  std::vector<at::Tensor> state = optimizer->new_state(weight);
  const std::vector<at::Tensor> gradients = {at::tensor({0.5F, -1.0F}), at::tensor({0.25F, 0.5F})};
  for (int64_t step = 1; step <= 2; ++step) {
    const StepContext context{.learning_rate = 0.1, .step = step, .mean_decay = 0.5};
    if (step == 1) {
      optimizer->step(weight, gradients[0], weight, state, context);
    } else {
      std::vector<WeightStep> steps = {{weight, gradients[1], weight, state}};
      optimizer->step_together(steps, context);
    }
  }
  expect_near(weight, {0.88, -1.86});
  expect_near(state.back(), {-0.0475, 0.045});
}

}  // namespace
}  // namespace penstock::model
