// Copies of a pipeline that train by themselves for rounds of steps (DiLoCo): as a plain program
// trains them, on threads and on ranks, and on from any checkpoint with the same bits.
#include <ATen/Functions.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "penstock/runtime/fabric/testing_ranks.h"
#include "penstock/train/checkpoint/test_folder.h"
#include "penstock/train/serial_check.h"
#include "penstock/train/serial_replay.h"
#include "penstock/train/session.h"
#include "penstock/train/test_training.h"
#include "penstock/train/testing_replicas.h"
#include "penstock/util/error.h"
#include "tests/support/mutate.h"

namespace penstock::train {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

TrainOptions round_options(const plan::Plan& plan, int64_t every) {
  TrainOptions options = replica_options(plan);
  options.plan.sync = plan::GradientSync::DiLoCo;
  options.plan.sync_every = every;
  return options;
}

/// DiLoCo of one linear layer in plain libtorch: its gradients, optimisers and outer optimiser.
class PlainDiLoCo {
 public:
  PlainDiLoCo(const model::Tensors& weights, int copies, double rate) {
    for (const at::Tensor& weight : weights)
      common_.push_back(weight.detach().clone().set_requires_grad(true));
    torch::optim::SGDOptions outer(0.7);
    outer_ = std::make_unique<torch::optim::SGD>(common_, outer.momentum(0.9).nesterov(true));
    for (int c = 0; c < copies; ++c) {
      copies_.emplace_back();
      for (const at::Tensor& weight : weights)
        copies_.back().push_back(weight.detach().clone().set_requires_grad(true));
      inner_.push_back(std::make_unique<torch::optim::AdamW>(
          copies_.back(), torch::optim::AdamWOptions(rate).weight_decay(0)));
    }
  }

  void step(size_t copy, const at::Tensor& inputs, const at::Tensor& targets) {
    inner_[copy]->zero_grad();
    const at::Tensor logits = at::linear(inputs, copies_[copy][0], copies_[copy][1]);
    torch::nn::functional::cross_entropy(logits, targets).backward();
    inner_[copy]->step();
  }
  void end_round() {
    const at::NoGradGuard no_grad;
    for (size_t w = 0; w < common_.size(); ++w) {
      at::Tensor sum = at::zeros_like(common_[w]);
      for (const auto& copy : copies_) sum += common_[w] - copy[w];
      common_[w].mutable_grad() = sum / static_cast<double>(copies_.size());
    }
    outer_->step();
    for (auto& copy : copies_) {
      for (size_t w = 0; w < common_.size(); ++w) copy[w].copy_(common_[w]);
    }
  }
  const model::Tensors& weights() const { return common_; }

 private:
  model::Tensors common_;
  std::vector<model::Tensors> copies_;
  std::vector<std::unique_ptr<torch::optim::AdamW>> inner_;
  std::unique_ptr<torch::optim::SGD> outer_;
};

TEST(Rounds, TrainAsPlainDiLoCo) {
  model::ModelBuilder net("linear");
  const model::Model model = net.build(net.linear(net.input({6}), {.features = 3, .name = "fc"}));
  const DataSplit data = feature_data(240);
  TrainOptions options = round_options(plan_for(model, "dp", {2}, 2), 3);
  options.optimizer = model::usual_spec(model::OptimizerKind::AdamW);
  options.optimizer.weight_decay = 0;
  options.shuffle = false;
  options.epochs = 1;  // 12 steps
  PlainDiLoCo plain(model.initial_weights(LayerId{0}, options.seed), 2, options.learning_rate.base);
  for (int64_t t = 0; t < 12; ++t) {
    for (int64_t copy = 0; copy < 2; ++copy) {
      const Batch batch = batch_of(*data.train, 20 * t + 10 * copy, 10);
      plain.step(static_cast<size_t>(copy), batch.inputs.front(), batch.targets);
    }
    if (t % 3 == 2) plain.end_round();
  }
  const TrainResult result = train(model, data, options);
  EXPECT_LT(layers_difference(result.weights, std::vector<model::Tensors>{plain.weights()}), 1e-5);
}

struct RoundCase {
  ScheduleCase schedule;
  int64_t every;
  model::OptimizerKind optimizer = model::OptimizerKind::Sgd;
};

TEST(Rounds, AreThoseOfOneThreadOnThreadsAndOnRanks) {
  const model::Model model = branching_model();
  const DataSplit data = feature_data(190);  // the last mini-batch of an epoch is shorter
  for (const RoundCase& c :
       {RoundCase{{"dp", {2}, 2}, 1}, RoundCase{{"dp", {3}, 6}, 4, model::OptimizerKind::AdamW},
        RoundCase{{"1f1b-flush", {2, 2}, 4}, 3, model::OptimizerKind::AdamW},
        RoundCase{{"gpipe", {2, 2}, 5}, 50}, RoundCase{{"zb-h1", {2, 2}, 4}, 3},
        RoundCase{{"1f1b", {2, 2}, 2}, 3}, RoundCase{{"chimera", {2, 2}, 4}, 3},
        RoundCase{{"1f1b", {2, 2}, 2, 1, "latest"}, 3}}) {
    SCOPED_TRACE(fmt::format("{} {} diloco:{}", c.schedule.strategy,
                             fmt::join(c.schedule.replicas, "-"), c.every));
    TrainOptions options = round_options(plan_for(model, c.schedule), c.every);
    options.optimizer = model::usual_spec(c.optimizer);
    expect_as_replayed(model, data, options);
  }
}

TEST(Rounds, OfOneStepWithoutAnOuterOptimiserAddAsOrderedDoes) {
  const model::Model model = branching_model(0);
  const DataSplit data = feature_data();
  TrainOptions options = round_options(plan_for(model, "dp", {2}, 2), 1);
  options.optimizer.momentum = 0;
  options.outer = {.learning_rate = 1, .momentum = 0};
  const TrainResult rounds = train(model, data, options);
  options.plan.sync = plan::GradientSync::Ordered;
  const TrainResult ordered = train(model, data, options);
  EXPECT_LT(layers_difference(rounds.weights, ordered.weights), 1e-5);
}

TEST(Rounds, InSixteenBitsTheChangesAreRoundedAlikeOnThreadsAndRanks) {
  const model::Model model = branching_model(0);
  const DataSplit data = feature_data();
  TrainOptions options = round_options(plan_for(model, "dp", {3}, 3), 4);
  options.plan.gradient_precision = FloatType::BFloat16;
  const TrainResult threads = train(model, data, options);
  for (const auto& rig : runtime::testing::rank_rigs()) {
    const TrainResult ranks = trained_on(model, data, options, &rig);
    EXPECT_EQ(ranks.losses, threads.losses) << rig.name;
  }
  EXPECT_LT(layers_difference(threads.weights, replay_serially(model, data, options).weights),
            1e-3);
}

TEST(Rounds, WeightsOfSixteenBitsLearn) {
  const model::Model model = branching_model(0);
  TrainOptions options = round_options(plan_for(model, "dp", {2}, 2), 4);
  options.plan.precision = Precision::BFloat16;
  options.epochs = 6;
  const TrainResult result = train(model, feature_data(), options);
  EXPECT_LT(result.losses.back(), 0.7 * result.losses.front());
}

class StopInRound : public TrainObserver {
 public:
  explicit StopInRound(int64_t steps) : left_(steps) {}
  void on_mini_batch(const Progress&) override { stop = --left_ <= 0; }
  std::atomic<bool> stop{false};

 private:
  int64_t left_;
};

TEST(Rounds, GoOnFromAnyCheckpointWithTheSameBits) {
  const model::Model model = branching_model();
  const DataSplit data = feature_data(200);
  TrainOptions options = round_options(plan_for(model, "1f1b-flush", {2, 2}, 4), 4);
  options.optimizer = model::usual_spec(model::OptimizerKind::AdamW);
  options.evaluate = true;  // looks at the weights between two ends of a round
  for (const int64_t stop : {1, 3, 5, 7, 10, 13}) expect_going_on_after(stop, model, data, options);
}

TEST(Rounds, SavesAndEvaluationsWithinThemChangeNothing) {
  const model::Model model = branching_model();
  const DataSplit data = feature_data(200);
  TrainOptions options = round_options(plan_for(model, "1f1b-flush", {2, 2}, 4), 4);
  options.evaluate = true;
  const TrainResult whole = train(model, data, options);
  const TestFolder folder;
  options.checkpoint = folder.path();
  options.resume = true;
  options.eval_every = 3;
  options.save_every = 2;
  TrainOptions first = options;
  first.max_steps = 7;
  std::vector<double> losses = train(model, data, first).losses;
  const TrainResult rest = train(model, data, options);
  losses.insert(losses.end(), rest.losses.begin(), rest.losses.end());
  EXPECT_EQ(losses, whole.losses);
  EXPECT_EQ(rest.test_loss, whole.test_loss);
  EXPECT_EQ(layers_difference(rest.weights, whole.weights), 0);
}

TEST(Rounds, ASessionGoesOnInsideThem) {
  const model::Model model = branching_model();
  const DataSplit data = feature_data(200);
  const TrainOptions options = round_options(plan_for(model, "1f1b-flush", {2, 2}, 4), 4);
  const auto order = epoch_order(200, 1, 0, true);
  Session whole(model, options);
  const std::vector<StepResult> expected = whole.train(*data.train, order, 0, 20);
  ASSERT_EQ(expected.size(), 10U);
  const TestFolder folder;
  std::vector<StepResult> found;
  for (const EpochPart& part : {EpochPart{0, 3}, EpochPart{3, 3}, EpochPart{6, {}}}) {
    Session session(model, options);
    if (part.first > 0) session.resume(folder.path());
    for (const StepResult& step : session.train(*data.train, order, 0, 20, {}, {}, part))
      found.push_back(step);
    session.save(
        folder.path(),
        {.inside = {.steps = session.steps(), .batch_size = 20, .samples = 200, .shuffle = true}});
    if (session.steps() < 10) continue;
    const auto layers = session.snapshot();
    const auto wanted = whole.snapshot();
    for (size_t l = 0; l < layers.size(); ++l)
      EXPECT_EQ(layers_difference(std::vector<model::Tensors>{layers[l].weights},
                                  std::vector<model::Tensors>{wanted[l].weights}),
                0);
  }
  ASSERT_EQ(found.size(), 10U);
  for (size_t t = 0; t < 10; ++t) EXPECT_EQ(found[t].loss, expected[t].loss) << t;
}

TEST(Rounds, ASignalStopsThemToo) {
  const model::Model model = branching_model();
  const DataSplit data = feature_data(200);
  TrainOptions options = round_options(plan_for(model, "dp", {2}, 2), 4);
  const TrainResult whole = train(model, data, options);
  const TestFolder folder;
  options.checkpoint = folder.path();
  options.resume = true;
  StopInRound watcher(6);
  TrainOptions first = options;
  first.observer = &watcher;
  first.stop = &watcher.stop;
  EXPECT_TRUE(train(model, data, first).interrupted);
  const TrainResult rest = train(model, data, options);
  EXPECT_LT(rest.losses.size(), whole.losses.size());
  EXPECT_EQ(layers_difference(rest.weights, whole.weights), 0);
}

TEST(Rounds, ThatDivergeNameTheOuterStep) {
  const model::Model model = branching_model();
  TrainOptions options = round_options(plan_for(model, "dp", {2}, 6), 1);
  options.learning_rate.base = 1e38;
  EXPECT_THAT(tests::message_of<NoAnswer>([&] { train(model, feature_data(200), options); }),
              HasSubstr("a smaller outer learning rate or outer momentum"));
}

TEST(Rounds, ACheckpointOfOtherCopiesIsRefused) {
  const model::Model model = branching_model();
  const DataSplit data = feature_data(200);
  const TestFolder folder;
  TrainOptions options = round_options(plan_for(model, "dp", {2}, 6), 4);
  options.checkpoint = folder.path();
  options.resume = true;
  options.epochs = 1;
  train(model, data, options);
  options.epochs = 2;
  TrainOptions other = options;
  other.plan = round_options(plan_for(model, "dp", {3}, 6), 4).plan;
  EXPECT_THAT(tests::message_of<ConfigError>([&] { train(model, data, other); }),
              HasSubstr("expected a checkpoint of 3 copies, found 2; resume with"));
  TrainOptions together = options;
  together.plan.sync = plan::GradientSync::Ordered;
  together.plan.sync_every = 1;
  EXPECT_THAT(tests::message_of<ConfigError>([&] { train(model, data, together); }),
              HasSubstr("made under the synchronisation diloco"));
  // Another cut has the same copies.
  other.plan = round_options(plan_for(model, "gpipe", {2, 2}, 6), 4).plan;
  other.checkpoint = options.checkpoint = "";
  other.resume = options.resume = false;
  const TrainResult whole = train(model, data, options);
  other.checkpoint = folder.path();
  other.resume = true;
  EXPECT_EQ(layers_difference(train(model, data, other).weights, whole.weights), 0);
}

TEST(Rounds, AreCheckedAgainstOneThread) {
  const model::Model model = branching_model();
  const SerialCheck check = check_against_serial(
      model, feature_data(), round_options(plan_for(model, "1f1b-flush", {2, 2}, 4), 3), 8);
  EXPECT_TRUE(check.equal()) << check.first_weight;
  EXPECT_THAT(check.reference, HasSubstr("the steps of each of 2 copies of the pipeline"));
}

TEST(Rounds, WhatNeedsAllWorkersIsRefused) {
  const model::Model model = branching_model(0);
  const DataSplit data = feature_data();
  const auto refusal = [&](const model::Model& of, const TrainOptions& options) {
    return tests::message_of<ConfigError>([&] { train(of, data, options); });
  };
  const TrainOptions good = round_options(plan_for(model, "gpipe", {2, 2}, 4), 3);
  TrainOptions options = good;
  options.max_grad_norm = 1;
  EXPECT_THAT(refusal(model, options), HasSubstr("found a clip norm of 1"));
  options = good;
  options.plan.precision = Precision::Float16;
  EXPECT_THAT(refusal(model, options), HasSubstr("found float16"));
  options = good;
  options.mean.ema = 0.9;
  EXPECT_THAT(refusal(model, options), HasSubstr("no mean of the weights"));
  options = good;
  options.plan.stages[0].shard_optimizer = true;
  EXPECT_THAT(refusal(model, options), HasSubstr("without shared-out states"));
  options = good;
  options.plan.micro_batches = 1;
  EXPECT_THAT(refusal(model, options), HasSubstr("at least as many micro-batches"));
  options = good;
  options.outer.momentum = 1;
  EXPECT_THAT(refusal(model, options), HasSubstr("a momentum from 0 to below 1"));
  const model::Model tied = branching_model(0, /*tied=*/true);
  EXPECT_THAT(refusal(tied, round_options(plan_for(tied, "gpipe", {2, 2}, 4), 3)),
              HasSubstr("stages that share no weights"));
  // Within a stage they may be shared.
  EXPECT_FALSE(train(tied, data, round_options(plan_for(tied, "dp", {2}, 4), 3)).losses.empty());
}

}  // namespace
}  // namespace penstock::train
