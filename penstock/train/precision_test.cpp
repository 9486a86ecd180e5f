// Training in 16 bits: like one worker, and from checkpoints of another precision.
#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "penstock/train/checkpoint/checkpoint.h"
#include "penstock/train/serial_check.h"
#include "penstock/train/test_training.h"
#include "penstock/util/error.h"

namespace penstock::train {
namespace {

TrainOptions options_in(const plan::Plan& plan, Precision precision) {
  TrainOptions options;
  options.plan = plan;
  options.plan.precision = precision;
  options.mini_batch_size = 24;
  options.epochs = 2;
  options.learning_rate = {.base = 0.1};
  options.deadline = std::chrono::seconds(30);
  return options;
}

class TrainPrecision : public ::testing::TestWithParam<Precision> {};

TEST_P(TrainPrecision, FlushSchedulesTrainBitForBitLikeOneWorker) {
  const DataSplit data = feature_data();
  for (const bool tied : {false, true}) {
    const model::Model model = branching_model(0.2, tied);
    for (const auto& [strategy, replicas] : std::vector<std::pair<std::string, std::vector<int>>>{
             {"gpipe", {1, 1, 1}}, {"1f1b-flush", {2, 1}}, {"zb-h1", {1, 1, 1}}, {"dp", {2}}}) {
      SCOPED_TRACE(strategy + (tied ? ", tied" : ""));
      TrainOptions options = options_in(plan_for(model, strategy, replicas, 4), GetParam());
      options.max_grad_norm = 0.5;
      const SerialCheck check = check_against_serial(model, data, options, 12);
      EXPECT_EQ(check.tolerance, 0);
      EXPECT_EQ(check.losses, check.reference_losses);
      EXPECT_EQ(check.grad_norms, check.reference_grad_norms);
      EXPECT_TRUE(check.equal()) << check.first_weight;
    }
  }
}

TEST_P(TrainPrecision, PoliciesThatDelayWeightsTrainLikeTheirReplay) {
  const model::Model model = branching_model();
  const DataSplit data = feature_data();
  for (const std::string policy : {"stash", "vertical-sync", "latest"}) {
    SCOPED_TRACE(policy);
    TrainOptions options = options_in(plan_for(model, "1f1b", {1, 1, 1}, 1), GetParam());
    options.plan.weights = plan::parse_weight_policy(policy);
    const SerialCheck check = check_against_serial(model, data, options, 12);
    EXPECT_TRUE(check.equal()) << check.first_difference << ' ' << check.largest_difference;
  }
  TrainOptions options = options_in(plan_for(model, "2bw", {1, 1, 1}, 4), GetParam());
  const SerialCheck check = check_against_serial(model, data, options, 12);
  EXPECT_TRUE(check.equal()) << check.first_difference << ' ' << check.largest_difference;
}

TEST_P(TrainPrecision, ARunGoesOnFromACheckpointOfAnotherPrecision) {
  const model::Model model = branching_model(0);
  const DataSplit data = feature_data();
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() /
      ("penstock_precision_" + std::to_string(::getpid()) + std::string(to_string(GetParam())));
  std::filesystem::remove_all(folder);
  TrainOptions options = options_in(plan_for(model, "1f1b", {1, 1}, 1), Precision::Float32);
  options.epochs = 1;
  options.checkpoint = folder;
  const TrainResult wide = train(model, data, options);
  options.plan.precision = GetParam();
  options.epochs = 2;
  options.resume = true;
  options.keep_weights = true;
  const TrainResult narrow = train(model, data, options);
  EXPECT_EQ(narrow.steps, 2 * wide.steps);
  for (const model::Tensors& layer : narrow.weights) {
    for (const at::Tensor& weight : layer) EXPECT_EQ(weight.scalar_type(), at::kFloat);
  }
  const auto position = newest_position(folder, model);
  EXPECT_EQ(position.loss_scale.has_value(), GetParam() == Precision::Float16);
  options.plan.precision = Precision::Float32;
  options.epochs = 3;
  EXPECT_EQ(train(model, data, options).steps, 3 * wide.steps);
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Types, TrainPrecision,
                         ::testing::Values(Precision::BFloat16, Precision::Float16),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST(TrainFloat16, AResumedRunKeepsTheLossScaleAndTheCountOfSkippedSteps) {
  const model::Model model = branching_model(0);
  const DataSplit data = feature_data();
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("penstock_scale_" + std::to_string(::getpid()));
  std::filesystem::remove_all(folder);
  TrainOptions options = options_in(plan_for(model, "1f1b", {1, 1}, 1), Precision::Float16);
  options.optimizer = {.kind = model::OptimizerKind::Adam};
  options.learning_rate.base = 0.01;
  options.keep_weights = true;
  const TrainResult whole = train(model, data, options);
  options.checkpoint = folder;
  options.epochs = 1;
  const TrainResult first = train(model, data, options);
  options.epochs = 2;
  options.resume = true;
  const TrainResult rest = train(model, data, options);
  EXPECT_EQ(rest.skipped_steps, whole.skipped_steps);
  EXPECT_EQ(rest.loss_scale, whole.loss_scale);
  ASSERT_EQ(first.losses.size() + rest.losses.size(), whole.losses.size());
  EXPECT_EQ(rest.losses.back(), whole.losses.back());
  std::filesystem::remove_all(folder);
}

TEST(TrainFloat16, RefusesReplicasThatDoNotWaitForEachOther) {
  const model::Model model = branching_model(0);
  TrainOptions options = options_in(plan_for(model, "dp", {2}, 2), Precision::Float16);
  options.plan.sync = plan::GradientSync::Asynchronous;
  options.optimizer = {.kind = model::OptimizerKind::Sgd};
  EXPECT_THROW(train(model, feature_data(), options), ConfigError);
}

}  // namespace
}  // namespace penstock::train
