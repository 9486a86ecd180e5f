// Replicas that sum their gradients as factors (PowerSGD): as a plain program trains them, on
// threads and on ranks, and on from any checkpoint with the same bits.
#include <ATen/Functions.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>

#include <numeric>

#include "penstock/plan/low_rank.h"
#include "penstock/runtime/fabric/testing_ranks.h"
#include "penstock/runtime/low_rank.h"
#include "penstock/runtime/low_rank_state.h"
#include "penstock/train/checkpoint/test_folder.h"
#include "penstock/train/serial_check.h"
#include "penstock/train/serial_replay.h"
#include "penstock/train/test_training.h"
#include "penstock/train/testing_replicas.h"
#include "penstock/util/error.h"
#include "tests/support/mutate.h"

namespace penstock::train {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

TrainOptions factor_options(const plan::Plan& plan, int64_t rank) {
  TrainOptions options = replica_options(plan);
  options.plan.set_sync_method({plan::GradientSync::PowerSgd, 1, rank});
  return options;
}

/// PowerSGD of one linear layer in plain libtorch, as torch.distributed's hook computes it: means,
/// QR, and errors against the mean.
class PlainPowerSgd {
 public:
  PlainPowerSgd(const model::Tensors& weights, at::Tensor q, size_t replicas, double rate)
      : q_(std::move(q)), errors_(replicas), rate_(rate) {
    for (const at::Tensor& weight : weights)
      weights_.push_back(weight.detach().clone().set_requires_grad(true));
    for (at::Tensor& error : errors_) error = at::zeros_like(weights_[0]);
  }

  void step(const std::vector<Batch>& batches) {
    model::Tensors inputs;
    at::Tensor bias = at::zeros_like(weights_[1]);
    for (size_t k = 0; k < batches.size(); ++k) {
      for (at::Tensor& weight : weights_) weight.mutable_grad().reset();
      const at::Tensor logits = at::linear(batches[k].inputs.front(), weights_[0], weights_[1]);
      torch::nn::functional::cross_entropy(logits, batches[k].targets).backward();
      inputs.push_back(weights_[0].grad() + errors_[k]);
      bias += weights_[1].grad();
    }
    const at::NoGradGuard no_grad;
    const auto count = static_cast<double>(batches.size());
    at::Tensor p = at::zeros({weights_[0].size(0), q_.size(1)});
    for (const at::Tensor& input : inputs) p += at::matmul(input, q_);
    p = std::get<0>(at::linalg_qr(p / count));
    at::Tensor q = at::zeros_like(q_);
    for (const at::Tensor& input : inputs) q += at::matmul(input.t(), p);
    q_ = q / count;
    const at::Tensor mean = at::matmul(p, q_.t());
    for (size_t k = 0; k < inputs.size(); ++k) errors_[k] = inputs[k] - mean;
    weights_[0] -= rate_ * mean;
    weights_[1] -= rate_ * (bias / count);
  }
  const model::Tensors& weights() const { return weights_; }

 private:
  model::Tensors weights_;
  at::Tensor q_;
  model::Tensors errors_;
  double rate_;
};

TEST(LowRankSums, TrainAsPlainPowerSgd) {
  model::ModelBuilder net("linear");
  const model::Model model = net.build(net.linear(net.input({6}), {.features = 3, .name = "fc"}));
  const DataSplit data = feature_data(240);
  TrainOptions options = factor_options(plan_for(model, "dp", {2}, 2), 1);
  options.optimizer.momentum = 0;
  options.shuffle = false;
  // Rounding grows from step to step, faster with larger steps.
  options.learning_rate.base = 0.05;
  PlainPowerSgd plain(
      model.initial_weights(LayerId{0}, options.seed),
      runtime::random_columns(6, 1, runtime::low_rank_seed(options.seed, LayerId{0}, 0)), 2, 0.05);
  for (int64_t t = 0; t < 24; ++t) {
    const int64_t first = 20 * (t % 12);
    plain.step({batch_of(*data.train, first, 10), batch_of(*data.train, first + 10, 10)});
  }
  const TrainResult result = train(model, data, options);
  EXPECT_LT(layers_difference(result.weights, std::vector<model::Tensors>{plain.weights()}), 1e-5);
  options.plan.set_sync_method(plan::GradientSync::Ordered);
  EXPECT_GT(layers_difference(train(model, data, options).weights,
                              std::vector<model::Tensors>{plain.weights()}),
            1e-3);
}

struct FactorCase {
  ScheduleCase schedule;
  int64_t rank;
  model::OptimizerKind optimizer = model::OptimizerKind::Sgd;
  double clip = 0;
};

TEST(LowRankSums, AreThoseOfOneThreadOnThreadsAndOnRanks) {
  const DataSplit data = feature_data(190);  // the last mini-batch of an epoch is shorter
  for (const bool tied : {false, true}) {
    const model::Model model = branching_model(0, tied);
    for (const FactorCase& c :
         {FactorCase{{"dp", {2}, 2}, 1}, FactorCase{{"dp", {3}, 6}, 2, model::OptimizerKind::AdamW},
          FactorCase{{"dp", {3}, 2}, 1},  // one replica has no micro-batch
          FactorCase{{"1f1b-flush", {2, 1}, 4}, 2, model::OptimizerKind::AdamW, 0.5},
          FactorCase{{"gpipe", {1, 2}, 4}, 1}, FactorCase{{"zb-h1", {2, 2}, 4}, 1},
          FactorCase{{"1f1b", {2, 1}, 2}, 1}, FactorCase{{"chimera", {2, 2}, 4}, 2}}) {
      if (tied && c.schedule.strategy == "1f1b")
        continue;  // stages share weights under flush alone
      SCOPED_TRACE(fmt::format("{} {} powersgd:{} tied: {}", c.schedule.strategy,
                               fmt::join(c.schedule.replicas, "-"), c.rank, tied));
      TrainOptions options = factor_options(plan_for(model, c.schedule), c.rank);
      options.optimizer = model::usual_spec(c.optimizer);
      options.learning_rate.base = 0.02;  // rounding grows faster with larger steps
      options.max_grad_norm = c.clip;
      expect_as_replayed(model, data, options);
    }
  }
}

TEST(LowRankSums, OfARankThatPaysNothingAddWholeGradients) {
  const model::Model model = branching_model(0);
  TrainOptions options = factor_options(plan_for(model, "dp", {2}, 2), 1000);
  const TrainResult factors = train(model, feature_data(), options);
  options.plan.set_sync_method(plan::GradientSync::Ordered);
  EXPECT_EQ(factors.losses, train(model, feature_data(), options).losses);
}

/// That all ranks send of tensors in a run of so many steps.
int64_t bytes_sent(const model::Model& model, TrainOptions options, int64_t steps) {
  options.max_steps = steps;
  std::vector<int64_t> sent(2);
  const auto failures = runtime::testing::on_ranks(runtime::testing::rank_rigs()[1], {0, 1},
                                                   [&](runtime::World& world, size_t rank) {
                                                     TrainOptions own = options;
                                                     own.world = &world;
                                                     train(model, feature_data(), own);
                                                     sent[rank] = world.wire().sent_bytes;
                                                   });
  EXPECT_THAT(failures, Each(""));
  return sent[0] + sent[1];
}

TEST(LowRankSums, SendTheBytesOfTheFormula) {
  const model::Model model = branching_model(0);
  TrainOptions options = factor_options(plan_for(model, "dp", {2}, 2), 2);
  int64_t numbers = 0;
  for (int l = 0; l < model.graph().num_layers(); ++l) {
    for (const model::ParameterSpec& spec : model.layer(LayerId{l}).parameters())
      numbers += plan::summed_numbers(plan::matrix_sizes(spec.shape), 2);
  }
  EXPECT_LT(numbers, model.parameter_count());
  const auto of_five_steps = [&] {
    return bytes_sent(model, options, 8) - bytes_sent(model, options, 3);
  };
  // Each of n = 2 replicas sends 2 (n-1)/n of them; with bfloat16 half the bytes. The rest is what
  // every method sends, such as the losses.
  const int64_t rest = of_five_steps() - 5 * 2 * 4 * numbers;
  EXPECT_LT(rest, 5 * 50);
  options.plan.gradient_precision = FloatType::BFloat16;
  EXPECT_EQ(of_five_steps(), 5 * 2 * 2 * numbers + rest);
  options.plan.set_sync_method(plan::GradientSync::Ordered);
  EXPECT_EQ(of_five_steps(), 5 * 2 * 2 * model.parameter_count() + rest);
}

TEST(LowRankSums, InSixteenBitsFactorsAreRoundedAlikeOnThreadsAndRanks) {
  const model::Model model = branching_model(0);
  const DataSplit data = feature_data();
  TrainOptions options = factor_options(plan_for(model, "dp", {3}, 3), 2);
  options.plan.gradient_precision = FloatType::BFloat16;
  const TrainResult threads = train(model, data, options);
  for (const auto& rig : runtime::testing::rank_rigs()) {
    const TrainResult ranks = trained_on(model, data, options, &rig);
    EXPECT_EQ(ranks.losses, threads.losses) << rig.name;
  }
  EXPECT_LT(layers_difference(threads.weights, replay_serially(model, data, options).weights),
            1e-2);
  options.plan.precision = Precision::BFloat16;
  options.epochs = 6;
  const TrainResult narrow = train(model, data, options);
  EXPECT_LT(narrow.losses.back(), 0.7 * narrow.losses.front());
}

TEST(LowRankSums, GoOnFromAnyCheckpointWithTheSameBits) {
  const model::Model model = branching_model();
  const DataSplit data = feature_data(200);
  TrainOptions options = factor_options(plan_for(model, "1f1b-flush", {3, 2}, 6), 1);
  options.optimizer = model::usual_spec(model::OptimizerKind::AdamW);
  for (const int64_t stop : {1, 5, 10, 13}) expect_going_on_after(stop, model, data, options);
}

TEST(LowRankSums, ACheckpointOfOtherReplicasIsRefused) {
  const model::Model model = branching_model();
  const DataSplit data = feature_data(200);
  const TestFolder folder;
  TrainOptions options = factor_options(plan_for(model, "dp", {2}, 6), 2);
  options.checkpoint = folder.path();
  options.resume = true;
  options.epochs = 1;
  train(model, data, options);
  options.epochs = 2;
  TrainOptions other = options;
  other.plan = factor_options(plan_for(model, "dp", {3}, 6), 2).plan;
  EXPECT_THAT(
      tests::message_of<ConfigError>([&] { train(model, data, other); }),
      HasSubstr("made under powersgd with 2 replicas, and this run is under powersgd with 3 "
                "replicas"));
  other = options;
  other.plan.set_sync_method(plan::GradientSync::Ordered);
  EXPECT_THAT(tests::message_of<ConfigError>([&] { train(model, data, other); }),
              HasSubstr("this run is without the synchronisation powersgd"));
  other = options;
  other.plan.sync_rank = 1;
  EXPECT_THAT(tests::message_of<ConfigError>([&] { train(model, data, other); }),
              HasSubstr("made with factors of another rank"));
}

TEST(LowRankSums, AreCheckedAgainstOneThread) {
  const model::Model model = branching_model();
  const SerialCheck check = check_against_serial(
      model, feature_data(), factor_options(plan_for(model, "1f1b-flush", {2, 1}, 4), 2), 8);
  EXPECT_TRUE(check.equal()) << check.first_weight;
  EXPECT_EQ(check.reference,
            "one thread that sums the factors of rank 2 of each replica's gradients");
}

TEST(LowRankSums, WhatHasNoWholeGradientsIsRefused) {
  const model::Model model = branching_model(0);
  const DataSplit data = feature_data();
  const auto refusal = [&](const TrainOptions& options) {
    return tests::message_of<ConfigError>([&] { train(model, data, options); });
  };
  TrainOptions options = factor_options(plan_for(model, "dp", {2}, 4), 3);
  options.plan.precision = Precision::Float16;
  EXPECT_THAT(refusal(options), HasSubstr("which leave out no steps, found float16"));
  options = factor_options(plan_for(model, "dp", {2}, 4), 3);
  options.plan.stages[0].shard_optimizer = true;
  EXPECT_THAT(refusal(options), HasSubstr("without shared-out states"));
}

}  // namespace
}  // namespace penstock::train
