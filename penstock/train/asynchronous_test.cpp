// Replicas that do not wait for each other, on threads and on ranks: without staleness they train
// as those that do, with it they learn.
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/runtime/fabric/testing_ranks.h"
#include "penstock/train/serial_check.h"
#include "penstock/train/test_training.h"
#include "penstock/util/error.h"

namespace penstock::train {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

TrainOptions asynchronous_options(const model::Model& model, const std::string& sync,
                                  int64_t staleness) {
  TrainOptions options;
  options.plan = plan_for(model, "dp", {3}, 3);
  options.plan.sync = plan::parse_gradient_sync(sync).sync;
  options.staleness = staleness;
  options.mini_batch_size = 20;
  options.epochs = 3;
  options.optimizer.momentum = 0.5;
  options.keep_weights = true;
  return options;
}

/// Each worker its own rank, or all on one.
TrainResult trained(const model::Model& model, const DataSplit& data, const TrainOptions& options,
                    const runtime::testing::RankRig* rig) {
  if (rig == nullptr) return train(model, data, options);
  std::vector<TrainResult> results(3);
  const auto failures =
      runtime::testing::on_ranks(*rig, {0, 1, 2}, [&](runtime::World& world, size_t rank) {
        TrainOptions own = options;
        own.world = &world;
        results[rank] = train(model, data, own);
      });
  EXPECT_THAT(failures, Each(""));
  return std::move(results[0]);
}

double largest_difference(const TrainResult& a, const TrainResult& b) {
  double largest = 0;
  for (size_t l = 0; l < a.weights.size(); ++l) {
    for (size_t w = 0; w < a.weights[l].size(); ++w)
      largest = std::max(largest, (a.weights[l][w] - b.weights[l][w]).abs().max().item<double>());
  }
  return largest;
}

TEST(Asynchronous, WithoutStalenessItTrainsAsOrderedDoes) {
  const model::Model model = branching_model(0);
  const DataSplit data = feature_data();
  const TrainResult expected = train(model, data, asynchronous_options(model, "ordered", 0));
  const std::vector<runtime::testing::RankRig> rigs = runtime::testing::rank_rigs();
  std::vector<const runtime::testing::RankRig*> places{nullptr};
  for (const auto& rig : rigs) places.push_back(&rig);
  for (const auto* place : places) {
    const TrainResult result =
        trained(model, data, asynchronous_options(model, "asynchronous", 0), place);
    ASSERT_EQ(result.losses.size(), expected.losses.size());
    for (size_t i = 0; i < expected.losses.size(); ++i)
      EXPECT_NEAR(result.losses[i], expected.losses[i], 1e-4) << i;
    EXPECT_LT(largest_difference(result, expected), 1e-4);
  }
}

TEST(Asynchronous, WithStalenessItLearns) {
  const model::Model model = branching_model(0);
  const DataSplit data = feature_data(600);
  const std::vector<runtime::testing::RankRig> rigs = runtime::testing::rank_rigs();
  std::vector<const runtime::testing::RankRig*> places{nullptr};
  for (const auto& rig : rigs) places.push_back(&rig);
  for (const auto* place : places) {
    TrainOptions options = asynchronous_options(model, "asynchronous", 3);
    options.epochs = 6;
    const TrainResult result = trained(model, data, options, place);
    EXPECT_LT(result.losses.back(), 0.7 * result.losses.front());
    EXPECT_GT(result.test_accuracy, 0.6);
  }
}

TEST(Asynchronous, StagesOfAPipelineMayHaveReplicas) {
  const model::Model model = branching_model(0);
  TrainOptions options = asynchronous_options(model, "asynchronous", 2);
  options.plan = plan_for(model, "1f1b", {2, 1}, 1);
  options.plan.sync = plan::GradientSync::Asynchronous;
  const TrainResult result = train(model, feature_data(), options);
  EXPECT_LT(result.losses.back(), result.losses.front());
}

TEST(Asynchronous, WhatCannotBeAddedIsRefused) {
  const model::Model model = branching_model(0);
  const DataSplit data = feature_data();
  const auto refusal = [&](const model::Model& of, const TrainOptions& options) -> std::string {
    try {
      train(of, data, options);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  };
  TrainOptions options = asynchronous_options(model, "asynchronous", 1);
  options.optimizer.kind = model::OptimizerKind::Adam;
  EXPECT_THAT(refusal(model, options), HasSubstr("found adam"));
  options.optimizer = {.weight_decay = 0.1};
  EXPECT_THAT(refusal(model, options), HasSubstr("found a weight decay of 0.1"));
  options = asynchronous_options(model, "asynchronous", 1);
  options.max_grad_norm = 2;
  EXPECT_THAT(refusal(model, options), HasSubstr("found clipping to a norm of 2"));
  options = asynchronous_options(model, "asynchronous", 1);
  options.plan.gradient_precision = FloatType::BFloat16;
  EXPECT_THAT(refusal(model, options), HasSubstr("expected the sync precision float32"));
  const model::Model tied = branching_model(0, /*tied=*/true);
  EXPECT_THAT(refusal(tied, asynchronous_options(tied, "asynchronous", 1)),
              HasSubstr("layers of 'branching' share weights"));
  EXPECT_THAT(refusal(model, asynchronous_options(model, "asynchronous", -1)),
              HasSubstr("the staleness"));
  EXPECT_THROW(check_against_serial(model, data, asynchronous_options(model, "asynchronous", 1), 3),
               ConfigError);
}

}  // namespace
}  // namespace penstock::train
