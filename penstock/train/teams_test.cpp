// Whole trainings of models whose stages have teams, against one worker.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/model/zoo.h"
#include "penstock/train/checkpoint/test_folder.h"
#include "penstock/train/test_training.h"
#include "penstock/util/error.h"

namespace penstock::train {
namespace {

constexpr int64_t kTokens = 40;
constexpr int64_t kTime = 8;

model::Model small_gpt(bool untied = false) {
  return model::make_model({.name = "gpt",
                            .input_shape = {kTime},
                            .classes = kTokens,
                            .width = 32,
                            .depth = 2,
                            .heads = 4,
                            .dropout = 0.1,
                            .untied = untied});
}

DataSplit token_data(const model::Model& model, int64_t samples = 64) {
  DataSpec spec;
  spec.name = "synthetic";
  spec.sample = samples_for(model, {});
  spec.train_samples = samples;
  spec.test_samples = 24;
  return load_data(spec);
}

plan::Plan with_teams(plan::Plan plan, const std::vector<int>& teams) {
  for (size_t s = 0; s < teams.size(); ++s) plan.stages[s].tensor = teams[s];
  return plan;
}

TrainOptions options_of(plan::Plan plan) {
  TrainOptions options{.plan = std::move(plan), .mini_batch_size = 8, .epochs = 3};
  options.optimizer.kind = model::OptimizerKind::AdamW;
  options.learning_rate.base = 1e-3;
  options.keep_weights = true;
  return options;
}

void expect_near(const TrainResult& found, const TrainResult& expected) {
  ASSERT_EQ(found.losses.size(), expected.losses.size());
  for (size_t i = 0; i < found.losses.size(); ++i)
    EXPECT_NEAR(found.losses[i], expected.losses[i], 1e-5 * expected.losses[i]) << "step " << i;
  EXPECT_NEAR(*found.test_loss, *expected.test_loss, 1e-5 * *expected.test_loss);
  ASSERT_EQ(found.weights.size(), expected.weights.size());
  for (size_t l = 0; l < found.weights.size(); ++l) {
    ASSERT_EQ(found.weights[l].size(), expected.weights[l].size());
    for (size_t w = 0; w < found.weights[l].size(); ++w)
      EXPECT_TRUE(at::allclose(found.weights[l][w], expected.weights[l][w], 1e-3, 2e-4));
  }
}

TEST(TeamTraining, IsThatOfOneWorker) {
  const model::Model model = small_gpt();
  const DataSplit data = token_data(model);
  const TrainResult expected = train(model, data, options_of(plan_for(model, "serial", {1}, 2)));
  ASSERT_EQ(expected.losses.size(), 24);
  EXPECT_LT(expected.losses.back(), expected.losses.front());
  for (const int members : {2, 3, 4}) {
    const TrainResult found =
        train(model, data, options_of(with_teams(plan_for(model, "serial", {1}, 2), {members})));
    expect_near(found, expected);
  }
}

}  // namespace
}  // namespace penstock::train
