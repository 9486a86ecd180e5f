// Under every schedule the pipeline trains like one worker.
#include "penstock/train/serial_check.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "penstock/model/zoo.h"
#include "penstock/plan/boundaries.h"
#include "penstock/plan/sync_precision.h"
#include "penstock/train/serial_replay.h"
#include "penstock/train/test_training.h"
#include "penstock/util/error.h"

namespace penstock::train {
namespace {

TrainOptions check_options(const plan::Plan& plan) {
  TrainOptions options;
  options.plan = plan;
  options.mini_batch_size = 24;  // eight full mini-batches and one of 8
  options.epochs = 2;
  options.learning_rate = {.base = 0.1, .schedule = "cosine"};
  options.deadline = std::chrono::seconds(30);
  return options;
}

std::string title_of(const ScheduleCase& c) {
  return c.strategy + " with " + std::to_string(c.micro_batches) + " micro-batches, " +
         std::to_string(c.replicas.size()) + " stages";
}

void expect_equal(const SerialCheck& check, size_t steps) {
  EXPECT_EQ(check.losses.size(), steps);
  EXPECT_EQ(check.tolerance, 0);
  EXPECT_EQ(check.losses, check.reference_losses);
  EXPECT_EQ(check.grad_norms, check.reference_grad_norms);
  EXPECT_EQ(check.first_weight, "");
  EXPECT_TRUE(check.equal());
}

TEST(SerialCheck, EveryFlushScheduleTrainsBitForBitLikeOneWorker) {
  const model::Model model = branching_model();
  const DataSplit data = feature_data();
  for (const ScheduleCase& c : flush_cases()) {
    SCOPED_TRACE(title_of(c));
    expect_equal(check_against_serial(model, data, check_options(plan_for(model, c)), 12), 12);
  }
}

TEST(SerialCheck, TrainingWithAClippedNormIsBitForBitLikeOneWorker) {
  const model::Model model = branching_model();
  const DataSplit data = feature_data();
  for (const ScheduleCase& c : flush_cases()) {
    SCOPED_TRACE(title_of(c));
    TrainOptions options = check_options(plan_for(model, c));
    options.max_grad_norm = 0.3;
    const SerialCheck check = check_against_serial(model, data, options, 6);
    expect_equal(check, 6);
    ASSERT_EQ(check.grad_norms.size(), 6U);
    EXPECT_GT(check.grad_norms.front(), 0.3) << "nothing was clipped, so nothing was tested";
  }
}

/// A decoder in a pipeline whose first stage has a team of two.
SerialCheck check_of_team(model::OptimizerKind optimizer, schedule::WeightPolicy weights) {
  const model::Model model = model::make_model({.name = "gpt",
                                                .input_shape = {8},
                                                .classes = 40,
                                                .width = 32,
                                                .depth = 2,
                                                .heads = 4,
                                                .untied = true});
  DataSpec spec;
  spec.name = "synthetic";
  spec.sample = samples_for(model, {});
  spec.train_samples = 48;
  spec.test_samples = 8;
  const bool drains = weights == schedule::WeightPolicy::Flush;
  plan::Plan plan = plan_for(model, drains ? "1f1b-flush" : "1f1b", {1, 1}, drains ? 2 : 1);
  plan.weights = weights;
  plan.stages[0].tensor = 2;
  TrainOptions options = check_options(plan);
  options.mini_batch_size = 8;
  options.optimizer.kind = optimizer;
  options.learning_rate.base = 0.01;
  options.max_grad_norm = 1;
  return check_against_serial(model, load_data(spec), options, 6);
}

TEST(SerialCheck, TeamsTrainLikeOneWorkerWithinRounding) {
  for (const auto weights : {schedule::WeightPolicy::Flush, schedule::WeightPolicy::Stash}) {
    const SerialCheck check = check_of_team(model::OptimizerKind::Sgd, weights);
    EXPECT_TRUE(check.equal()) << check.first_weight << " step " << check.first_difference;
    EXPECT_EQ(check.tolerance, 1e-4);
    EXPECT_LT(check.largest_difference, 1e-5);
    EXPECT_TRUE(check.compares_weights);
    EXPECT_EQ(check.losses.size(), 6U);
  }
}

// The gradient of the keys' bias is zero but for rounding, and Adam's steps have one size.
TEST(SerialCheck, TeamsWhoseOptimiserMakesStepsOfRoundingAreComparedByTheirLosses) {
  const SerialCheck check =
      check_of_team(model::OptimizerKind::AdamW, schedule::WeightPolicy::Flush);
  EXPECT_TRUE(check.equal());
  EXPECT_FALSE(check.compares_weights);
  EXPECT_LT(check.largest_difference, 1e-5);
}

plan::Plan coded(plan::Plan plan, const model::Model& model, const char* name) {
  plan::add_links(plan, model.graph());
  for (plan::Link& link : plan.links) link.coding = plan::parse_boundary(name);
  return plan;
}

TEST(SerialCheck, CodedBoundariesTrainBitForBitLikeOneWorkerWithTheSame) {
  const DataSplit data = feature_data();
  for (const auto& [tied, name] : {std::pair(false, "int8"), {true, "bfloat16"}}) {
    const model::Model model = branching_model(0.2, tied);
    for (const ScheduleCase& c : flush_cases()) {
      SCOPED_TRACE(title_of(c) + " " + name);
      TrainOptions options = check_options(coded(plan_for(model, c), model, name));
      options.max_grad_norm = tied ? 0 : 0.3;
      const SerialCheck check = check_against_serial(model, data, options, 4);
      expect_equal(check, 4);
      if (c.replicas.size() == 1) continue;
      ASSERT_EQ(check.uncoded_losses.size(), 4U);
      EXPECT_NE(check.uncoded_losses, check.losses);
      EXPECT_NE(check.loss_above_uncoded(), 0);
      EXPECT_LT(std::abs(check.loss_above_uncoded()), 0.02);
    }
  }
}

TEST(SerialCheck, CodedBoundariesOfDelayedWeightsEqualTheirReplay) {
  const model::Model model = branching_model(0.2);
  const DataSplit data = feature_data();
  for (const char* name : {"bfloat16", "float16", "int8", "subspace:5"}) {
    for (const ScheduleCase& c : {ScheduleCase{"1f1b", {1, 1, 1}, 1, 1, "stash"},
                                  ScheduleCase{"1f1b", {2, 1}, 2, 1, "stash"}}) {
      SCOPED_TRACE(title_of(c) + " " + name);
      const TrainOptions options = check_options(coded(plan_for(model, c), model, name));
      const SerialCheck check = check_against_serial(model, data, options, 6);
      EXPECT_TRUE(check.equal()) << check.first_difference << " " << check.first_weight << " "
                                 << check.largest_difference;
      EXPECT_NE(check.uncoded_losses, check.losses);
      // The replay is nearer to the run than training without codings is.
      EXPECT_LT(check.largest_difference,
                0.5 * std::abs(check.uncoded_losses.back() / check.losses.back() - 1));
    }
  }
}

/// Weights without biases: the biases have half the rate and no decay.
std::vector<model::ParameterGroup> weights_and_biases(const model::Model& model) {
  std::vector<model::ParameterGroup> groups{{.weight_decay = 0.1}, {.rate_factor = 0.5}};
  for (const graph::LayerNode& layer : model.graph().layers()) {
    for (const model::ParameterSpec& spec :
         model.layer(model.graph().find(layer.name)).parameters())
      groups[spec.name == "bias" ? 1 : 0].parameters.push_back(state_key(layer.name, spec));
  }
  return groups;
}

TEST(SerialCheck, GroupsOfParametersTrainBitForBitLikeOnOneWorker) {
  const DataSplit data = feature_data();
  for (const bool tied : {false, true}) {
    const model::Model model = branching_model(0.2, tied);
    for (const ScheduleCase& c : flush_cases()) {
      SCOPED_TRACE(title_of(c));
      TrainOptions options = check_options(plan_for(model, c));
      const double plain = check_against_serial(model, data, options, 3).losses.back();
      options.optimizer.groups = weights_and_biases(model);
      const SerialCheck check = check_against_serial(model, data, options, 3);
      expect_equal(check, 3);
      EXPECT_NE(check.losses.back(), plain) << "the groups have changed nothing";
    }
  }
}

TEST(SerialCheck, TheReferenceRoundsWhatReplicasSendIn16Bits) {
  const DataSplit data = feature_data();
  for (const bool tied : {false, true}) {
    const model::Model model = branching_model(0.2, tied);
    for (const char* precision : {"bfloat16", "float16"}) {
      for (const ScheduleCase& c : flush_cases()) {
        SCOPED_TRACE(title_of(c) + " " + precision);
        TrainOptions options = check_options(plan_for(model, c));
        options.plan.gradient_precision = plan::parse_sync_precision(precision);
        options.max_grad_norm = tied ? 0 : 0.3;
        expect_equal(check_against_serial(model, data, options, 4), 4);
      }
    }
  }
}

TEST(SerialCheck, WeightsThatStagesShareTrainBitForBitLikeOneWorker) {
  const model::Model model = branching_model(0.2, /*tied=*/true);
  const DataSplit data = feature_data();
  for (const ScheduleCase& c : flush_cases()) {
    SCOPED_TRACE(title_of(c));
    expect_equal(check_against_serial(model, data, check_options(plan_for(model, c)), 6), 6);
  }
}

TEST(SerialCheck, EvaluationGivesTheSameAccuracyOnWorkersWithSeveralStages) {
  const model::Model model = branching_model();
  const DataSplit data = feature_data();
  TrainOptions options = check_options(plan_for(model, "serial", {1}, 4));
  const TrainResult serial = train(model, data, options);
  ASSERT_TRUE(serial.test_accuracy.has_value());
  for (const ScheduleCase& c :
       {ScheduleCase{"interleaved", {1, 1, 1, 1}, 4, 2}, ScheduleCase{"zb-v", {1, 1, 1, 1}, 4, 2},
        ScheduleCase{"chimera", {2, 2}, 4}}) {
    SCOPED_TRACE(title_of(c));
    options.plan = plan_for(model, c);
    const TrainResult result = train(model, data, options);
    EXPECT_EQ(result.test_accuracy, serial.test_accuracy);
    EXPECT_NEAR(*result.epochs.back().test_loss, *serial.epochs.back().test_loss, 1e-5);
  }
}

TEST(SerialCheck, RecomputationChangesNothing) {
  const model::Model model = branching_model();
  for (const char* strategy : {"1f1b-flush", "zb-h1"}) {
    plan::Plan plan = plan_for(model, strategy, {1, 1, 1}, 4);
    plan.stages[0].recompute = plan.stages[2].recompute = true;
    expect_equal(check_against_serial(model, feature_data(), check_options(plan), 6), 6);
  }
}

TEST(SerialCheck, DelayedWeightsEqualTheReplayOfTheirDelays) {
  const model::Model model = branching_model(0.2);
  const DataSplit data = feature_data();
  const std::vector<ScheduleCase> cases = {{"1f1b", {1, 1, 1}, 1, 1, "stash"},
                                           {"1f1b", {1, 1, 1, 1}, 2, 1, "vertical-sync"},
                                           {"1f1b", {1, 1, 1}, 1, 1, "latest"},
                                           {"1f1b", {2, 1}, 2, 1, "stash"},
                                           {"2bw", {1, 1, 1}, 3, 1, "2bw"}};
  for (const ScheduleCase& c : cases) {
    SCOPED_TRACE(c.weights + " " + title_of(c));
    TrainOptions options = check_options(plan_for(model, c));
    // into the second epoch
    const SerialCheck check = check_against_serial(model, data, options, 14);
    EXPECT_EQ(check.losses.size(), 14U);
    EXPECT_GT(check.tolerance, 0);
    EXPECT_TRUE(check.equal()) << check.first_difference << " " << check.first_weight << " "
                               << check.largest_difference;
    const bool has_replicas = std::any_of(c.replicas.begin(), c.replicas.end(),
                                          [](int replicas) { return replicas > 1; });
    for (const char* precision : {"bfloat16", "float16"}) {
      if (!has_replicas) break;
      options.plan.gradient_precision = plan::parse_sync_precision(precision);
      const SerialCheck rounded = check_against_serial(model, data, options, 14);
      EXPECT_TRUE(rounded.equal()) << precision << " " << rounded.first_difference << " "
                                   << rounded.first_weight << " " << rounded.largest_difference;
      EXPECT_NE(rounded.losses, check.losses);
    }
    // The delay must change the result, or the replay would prove nothing.
    options.plan = plan_for(model, "serial", {1}, c.micro_batches);
    EXPECT_GT(std::abs(replay_serially(model, data, options).losses[13] - check.losses[13]), 1e-3);
  }
}

/// Adds a little more in each call, so no two runs are equal.
class Drifting : public model::Layer {
 public:
  std::string kind() const override { return "drifting"; }
  model::Tensors forward(model::TensorSpan, model::MutableTensorSpan, model::TensorSpan inputs,
                         const model::ForwardContext&) const override {
    return {inputs[0] + 1e-6 * static_cast<double>(++calls_)};
  }

 private:
  mutable std::atomic<int> calls_{0};
};

TEST(SerialCheck, FindsTheFirstStepThatDiffers) {
  model::ModelBuilder net("drifting");
  model::Value x = net.input({6});
  x = net.tanh(net.linear(x, {.features = 8}));
  x = net.apply(std::make_shared<Drifting>(), {x}).front();
  const model::Model model = net.build(net.linear(x, {.features = 3}));
  const SerialCheck check = check_against_serial(
      model, feature_data(), check_options(plan_for(model, "gpipe", {1, 1}, 2)), 5);
  EXPECT_FALSE(check.equal());
  EXPECT_EQ(check.first_difference, 0);
  EXPECT_NE(check.first_weight, "");
  EXPECT_GT(check.largest_difference, 0);
  EXPECT_LT(check.largest_difference, 1e-2);
}

TEST(SerialCheck, TiedAutoencoderOfTheZooIsCheckedToo) {
  const model::Model model = model::make_model(
      {.name = "tied_mlp", .input_shape = {6}, .classes = 3, .width = 16, .depth = 2});
  expect_equal(check_against_serial(model, feature_data(),
                                    check_options(plan_for(model, "zb-h1", {1, 1, 1}, 4)), 8),
               8);
}

TEST(SerialCheck, AuxiliaryAnswersComeFromAnyStage) {
  model::ModelBuilder net("two answers");
  model::Value x = net.tanh(net.linear(net.input({6}), {.features = 8}));
  const model::Value early = net.linear(x, {.features = 3, .name = "early"});
  x = net.tanh(net.linear(x, {.features = 8}));
  x = net.linear(net.tanh(net.linear(x, {.features = 8})), {.features = 3});
  const model::Model model = net.build(net.with_auxiliary(x, {{early, 0.4}}));
  const DataSplit data = feature_data();
  for (const char* strategy : {"gpipe", "zb-h1"}) {
    expect_equal(check_against_serial(model, data,
                                      check_options(plan_for(model, strategy, {1, 1, 1}, 4)), 8),
                 8);
  }
}

TEST(SerialCheck, RefusesWhatItCannotCheck) {
  const model::Model model = branching_model();
  const DataSplit data = feature_data();
  EXPECT_THROW(
      check_against_serial(model, data, check_options(plan_for(model, "gpipe", {1, 1}, 2)), 0),
      ConfigError);
  TrainOptions options = check_options(plan_for(model, "gpipe", {1, 1}, 2));
  std::atomic<bool> stop{true};
  options.stop = &stop;
  EXPECT_THROW(check_against_serial(model, data, options, 3), RuntimeError);
}

TEST(SerialCheck, RefusesRecomputationThatMixesVersions) {
  const model::Model model = branching_model();
  TrainOptions options = check_options(plan_for(model, "1f1b", {1, 1, 1}, 1));
  options.plan.stages[1].recompute = true;
  options.plan.weights = plan::WeightPolicy::Stash;
  EXPECT_TRUE(check_against_serial(model, feature_data(), options, 6).equal());
  options.plan.weights = plan::WeightPolicy::Latest;
  EXPECT_THROW(check_against_serial(model, feature_data(), options, 6), ConfigError);
}

/// Requests a stop in its nth call.
class Stopping : public model::Layer {
 public:
  Stopping(int64_t at, std::atomic<bool>& stop) : left_(at), stop_(stop) {}
  std::string kind() const override { return "stopping"; }
  std::vector<model::Shape> output_shapes(const std::vector<model::Shape>& inputs) const override {
    return inputs;
  }
  model::Tensors forward(model::TensorSpan, model::MutableTensorSpan, model::TensorSpan inputs,
                         const model::ForwardContext&) const override {
    if (--left_ == 0) stop_ = true;
    return {inputs[0] * 1.0};
  }
  int64_t left() const { return left_; }

 private:
  mutable std::atomic<int64_t> left_;
  std::atomic<bool>& stop_;
};

TEST(SerialCheck, StopsInTheMiddleOfTheReplay) {
  std::atomic<bool> stop{false};
  constexpr int64_t kSteps = 8;
  // one micro-batch each: in the third step of the replay
  const auto layer = std::make_shared<Stopping>(kSteps + 3, stop);
  model::ModelBuilder net("stopping");
  model::Value x = net.linear(net.input({6}), {.features = 8});
  x = net.apply(layer, {x}).front();
  const model::Model model = net.build(net.linear(x, {.features = 3}));
  TrainOptions options = check_options(plan_for(model, "1f1b", {1, 1}, 1));
  options.stop = &stop;
  EXPECT_THROW(check_against_serial(model, feature_data(), options, kSteps), RuntimeError);
  EXPECT_EQ(layer->left(), 0) << "nothing more was computed";
}

}  // namespace
}  // namespace penstock::train
