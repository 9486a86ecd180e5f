// Runs whose delays are compensated: they equal the replay, go on from checkpoints, and say what
// cannot work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "penstock/train/checkpoint/test_folder.h"
#include "penstock/train/checkpoint_checks.h"
#include "penstock/train/compensated_optimizer.h"
#include "penstock/train/serial_check.h"
#include "penstock/train/test_training.h"
#include "penstock/util/error.h"

namespace penstock::train {
namespace {

using model::OptimizerKind;
using plan::Compensation;
using ::testing::HasSubstr;

struct CompensatedCase {
  Compensation compensation;
  ScheduleCase schedule;
  OptimizerKind optimizer = OptimizerKind::Sgd;
};

const std::vector<CompensatedCase>& compensated_cases() {
  static const std::vector<CompensatedCase> cases = {
      {Compensation::Predict, {"1f1b", {1, 1, 1, 1}, 1, 1, "stash"}},
      {Compensation::Predict, {"1f1b", {1, 1, 1}, 1, 1, "stash"}, OptimizerKind::AdamW},
      {Compensation::Predict, {"1f1b", {2, 1}, 2, 1, "stash"}, OptimizerKind::NAdamW},
      {Compensation::Predict, {"1f1b", {1, 1, 1}, 2, 1, "vertical-sync"}, OptimizerKind::Adam},
      {Compensation::Predict, {"2bw", {1, 1, 1}, 3, 1, "2bw"}, OptimizerKind::Lion},
      {Compensation::Rate, {"1f1b", {1, 1, 1, 1}, 1, 1, "stash"}},
      {Compensation::Rate, {"1f1b", {1, 1, 1, 1}, 1, 1, "latest"}, OptimizerKind::Lamb},
      {Compensation::Correct, {"1f1b", {1, 1, 1, 1}, 1, 1, "latest"}},
      {Compensation::Correct, {"1f1b", {1, 1, 1}, 2, 1, "latest"}, OptimizerKind::AdamW},
      {Compensation::Nesterov, {"1f1b", {1, 1, 1, 1}, 1, 1, "stash"}},
      {Compensation::Nesterov, {"1f1b", {1, 1, 1}, 1, 1, "stash"}, OptimizerKind::AdamW},
      {Compensation::Nesterov, {"2bw", {1, 1, 1}, 3, 1, "2bw"}, OptimizerKind::Adam},
      {Compensation::None, {"2bw", {1, 1, 1}, 3, 1, "2bw"}, OptimizerKind::Muon}};
  return cases;
}

TrainOptions compensated_options(const model::Model& model, const CompensatedCase& c) {
  TrainOptions options;
  options.plan = plan_for(model, c.schedule);
  options.plan.compensation = c.compensation;
  options.optimizer = model::usual_spec(c.optimizer);
  options.mini_batch_size = 24;
  options.epochs = 2;
  // A correction is small where steps are.
  const double larger = c.compensation == Compensation::Correct ? 4 : 1;
  const double rate = c.optimizer == OptimizerKind::Sgd ? 0.1 : 0.005;
  options.learning_rate = {.base = larger * rate, .schedule = "cosine"};
  options.deadline = std::chrono::seconds(30);
  return options;
}

std::string title_of(const CompensatedCase& c) {
  return std::string(to_string(c.compensation)) + " " + c.schedule.weights + " " +
         std::string(to_string(c.optimizer));
}

TEST(CompensatedRuns, EqualTheReplayOfTheirDelays) {
  const model::Model model = branching_model(0.2);
  const DataSplit data = feature_data();
  for (const CompensatedCase& c : compensated_cases()) {
    SCOPED_TRACE(title_of(c));
    TrainOptions options = compensated_options(model, c);
    for (const double clip : {0.0, 0.3}) {
      options.max_grad_norm = clip;
      const SerialCheck check = check_against_serial(model, data, options, 14);
      EXPECT_EQ(check.losses.size(), 14U);
      EXPECT_TRUE(check.equal()) << clip << ": " << check.first_difference << " "
                                 << check.first_weight << " " << check.largest_difference;
    }
    if (c.compensation == Compensation::None) continue;
    // Otherwise the replay would prove nothing.
    const SerialCheck check = check_against_serial(model, data, options, 14);
    options.plan.compensation = Compensation::None;
    const SerialCheck plain = check_against_serial(model, data, options, 14);
    EXPECT_GT(std::abs(check.losses[13] - plain.losses[13]), 1e-4);
  }
}

TEST(CompensatedRuns, InShortPrecisionsTheyEqualTheReplayToo) {
  const model::Model model = branching_model(0.2);
  const DataSplit data = feature_data();
  for (const CompensatedCase& c : compensated_cases()) {
    for (const Precision precision : {Precision::BFloat16, Precision::Float16}) {
      SCOPED_TRACE(title_of(c) + " " + std::string(to_string(precision)));
      TrainOptions options = compensated_options(model, c);
      options.plan.precision = precision;
      const SerialCheck check = check_against_serial(model, data, options, 6);
      EXPECT_TRUE(check.equal()) << check.first_difference << " " << check.first_weight << " "
                                 << check.largest_difference;
    }
  }
}

TEST(CompensatedRuns, RecomputationChangesNothing) {
  const model::Model model = branching_model(0.2);
  const DataSplit data = feature_data();
  TrainOptions options = compensated_options(model, compensated_cases().front());
  options.keep_weights = true;
  const TrainResult kept = train(model, data, options);
  for (plan::Stage& stage : options.plan.stages) stage.recompute = true;
  EXPECT_EQ(train(model, data, options).losses, kept.losses);
}

TEST(CompensatedRuns, GoOnFromTheirCheckpoints) {
  const model::Model model = branching_model(0);
  const DataSplit data = feature_data();
  for (const CompensatedCase& c : compensated_cases()) {
    SCOPED_TRACE(title_of(c));
    TrainOptions options = compensated_options(model, c);
    options.learning_rate.schedule = "constant";
    options.learning_rate_steps = c.compensation == Compensation::Rate ? 60 : 0;
    options.keep_weights = true;
    const TrainResult whole = train(model, data, options);
    const TestFolder folder;
    options.checkpoint = folder.path();
    options.epochs = 1;
    train(model, data, options);
    options.epochs = 2;
    options.resume = true;
    const TrainResult rest = train(model, data, options);
    ASSERT_LT(rest.losses.size(), whole.losses.size());
    EXPECT_TRUE(std::equal(rest.losses.rbegin(), rest.losses.rend(), whole.losses.rbegin()));
    for (size_t l = 0; l < whole.weights.size(); ++l) {
      for (size_t w = 0; w < whole.weights[l].size(); ++w)
        EXPECT_TRUE(whole.weights[l][w].equal(rest.weights[l][w])) << l;
    }
  }
}

TEST(CompensatedRuns, ARateFadesOverAQuarterOfTheSchedule) {
  EXPECT_EQ(fade_steps(100), 25);
  EXPECT_EQ(fade_steps(0), 1);
  TrainOptions options;
  EXPECT_EQ(schedule_steps(options, 0, 40), 0);
  options.plan.compensation = Compensation::Rate;
  EXPECT_EQ(schedule_steps(options, 0, 40), 40);
  EXPECT_EQ(schedule_steps(options, 30, 40), 30);
}

TEST(CompensatedRuns, NesterovChoosesTheOptimisersForm) {
  const auto made = [](OptimizerKind kind) {
    model::OptimizerSpec spec = model::usual_spec(kind);
    spec.weight_decay = 0.01;
    spec.groups = {{.parameters = {"a"}, .rate_factor = 2}};
    return compensated_optimizer(spec, Compensation::Nesterov);
  };
  EXPECT_EQ(made(OptimizerKind::Adam).kind, OptimizerKind::NAdam);
  EXPECT_EQ(made(OptimizerKind::AdamW).kind, OptimizerKind::NAdamW);
  EXPECT_EQ(made(OptimizerKind::AdamW).beta1, 0.99);
  EXPECT_EQ(made(OptimizerKind::AdamW).weight_decay, 0.01);
  EXPECT_EQ(made(OptimizerKind::AdamW).rate_factor, 1);
  const model::OptimizerSpec sgd = made(OptimizerKind::Sgd);
  EXPECT_TRUE(sgd.nesterov);
  EXPECT_EQ(sgd.momentum, 0.99);
  EXPECT_NEAR(sgd.rate_factor, 0.01, 1e-15);
  EXPECT_NEAR(sgd.groups[0].rate_factor, 0.02, 1e-15);
}

std::string refused(OptimizerKind kind, Compensation compensation, bool amsgrad = false) {
  model::OptimizerSpec spec = model::usual_spec(kind);
  spec.amsgrad = amsgrad;
  try {
    compensated_optimizer(spec, compensation);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(CompensatedRuns, OptimisersThatDoNotFitAreRefused) {
  EXPECT_EQ(refused(OptimizerKind::Muon, Compensation::Predict),
            "compensation predict does not work with the optimiser muon: its state does not say "
            "its next step; expected one of sgd with momentum, adam, adamw, nadam, nadamw, rmsprop "
            "with momentum, lion");
  EXPECT_THAT(refused(OptimizerKind::Lion, Compensation::Nesterov),
              HasSubstr("expected sgd, adam, adamw, nadam or nadamw"));
  EXPECT_THAT(refused(OptimizerKind::Adam, Compensation::Nesterov, true), HasSubstr("amsgrad"));
  EXPECT_EQ(refused(OptimizerKind::Muon, Compensation::Rate), "");
  EXPECT_EQ(refused(OptimizerKind::Muon, Compensation::Correct), "");
}

TEST(CompensatedRuns, PlansThatDoNotFitAreRefused) {
  const model::Model model = branching_model(0);
  const DataSplit data = feature_data();
  TrainOptions options =
      compensated_options(model, {Compensation::Predict, {"1f1b-flush", {1, 1}, 4, 1, "flush"}});
  EXPECT_THROW(train(model, data, options), ConfigError);
  options = compensated_options(model, {Compensation::Predict, {"1f1b", {2, 1}, 2, 1, "stash"}});
  options.plan.stages[0].shard_optimizer = true;
  EXPECT_THROW(train(model, data, options), ConfigError);
}

}  // namespace
}  // namespace penstock::train
