// Whole training runs on small synthetic data: stopping, resuming, refusing.
#include "penstock/train/trainer.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "penstock/model/builder.h"
#include "penstock/plan/sync_precision.h"
#include "penstock/schedule/generate.h"
#include "penstock/train/checkpoint/checkpoint.h"
#include "penstock/train/checkpoint/test_folder.h"
#include "penstock/train/data/epoch_batches.h"
#include "penstock/train/data/sample_subset.h"
#include "penstock/train/data/tensor_dataset.h"
#include "penstock/train/serial_check.h"
#include "penstock/train/test_training.h"
#include "penstock/util/error.h"

namespace penstock::train {
namespace {

model::Model small_model() {
  model::ModelBuilder net("small");
  model::Value x = net.input({6});
  x = net.tanh(net.linear(x, {.features = 16, .name = "fc1"}));
  x = net.tanh(net.linear(x, {.features = 16, .name = "fc2"}));
  return net.build(net.linear(x, {.features = 3, .name = "fc3"}));
}

/// fc1 .. tanh on the first stage, the rest on the second.
plan::Plan two_stages(const std::string& strategy, int64_t micro_batches = 1) {
  const model::Model model = small_model();
  plan::Plan plan;
  plan.strategy = plan::parse_scheduled_strategy(strategy);
  plan.weights = default_policy(plan.strategy);
  plan.micro_batches = micro_batches;
  plan.stages.resize(strategy == "serial" ? 1 : 2);
  for (const auto& layer : model.graph().layers())
    plan.stages[plan.stages.size() > 1 && plan.stages[0].layers.size() >= 2 ? 1 : 0]
        .layers.push_back(layer.name);
  return plan;
}

TrainOptions options_for(const std::string& strategy, int64_t epochs,
                         const std::filesystem::path& checkpoint = {}) {
  TrainOptions options;
  options.plan = two_stages(strategy, strategy == "gpipe" ? 4 : 1);
  options.mini_batch_size = 16;
  options.epochs = epochs;
  options.checkpoint = checkpoint;
  return options;
}

/// Stops after this many mini-batches.
class StopAfter : public TrainObserver {
 public:
  explicit StopAfter(int64_t mini_batches) : left_(mini_batches) {}
  void on_mini_batch(const Progress&) override { stop = --left_ <= 0; }
  std::atomic<bool> stop{false};

 private:
  int64_t left_;
};

TEST(Trainer, AnInterruptedSynchronousRunResumesToTheSameLosses) {
  const model::Model model = small_model();
  const DataSplit data = feature_data();
  const TrainResult whole = train(model, data, options_for("gpipe", 3));
  EXPECT_FALSE(whole.interrupted);
  EXPECT_LT(whole.losses.back(), whole.losses.front());

  const TestFolder folder;
  TrainOptions options = options_for("gpipe", 3, folder.path());
  StopAfter observer(5);
  options.observer = &observer;
  options.stop = &observer.stop;
  const TrainResult first = train(model, data, options);
  EXPECT_TRUE(first.interrupted);
  ASSERT_LT(first.losses.size(), whole.losses.size());
  options = options_for("serial", 3, folder.path());  // another split
  options.resume = true;
  const TrainResult second = train(model, data, options);
  std::vector<double> joined = first.losses;
  joined.insert(joined.end(), second.losses.begin(), second.losses.end());
  ASSERT_EQ(joined.size(), whole.losses.size());
  for (size_t i = 0; i < joined.size(); ++i) EXPECT_NEAR(joined[i], whole.losses[i], 1e-5) << i;
  EXPECT_EQ(second.steps, whole.steps);
}

TEST(Trainer, ResumingInsideAnEpochWithOtherDataIsRefused) {
  const model::Model model = small_model();
  const TestFolder folder;
  TrainOptions options = options_for("1f1b", 3, folder.path());
  StopAfter observer(3);
  options.observer = &observer;
  options.stop = &observer.stop;
  ASSERT_TRUE(train(model, feature_data(), options).interrupted);
  options = options_for("1f1b", 3, folder.path());
  options.resume = true;
  EXPECT_THROW(train(model, feature_data(64), options), ConfigError);
  options.mini_batch_size = 8;
  EXPECT_THROW(train(model, feature_data(), options), ConfigError);
  options.mini_batch_size = 16;
  options.shuffle = false;
  EXPECT_THROW(train(model, feature_data(), options), ConfigError);
  options.shuffle = true;
  options.optimizer.momentum = 0;
  EXPECT_THROW(train(model, feature_data(), options), ConfigError);
  options.optimizer.momentum = 0.9;
  EXPECT_FALSE(train(model, feature_data(), options).interrupted);
}

TEST(Trainer, ResumingAtAnEpochsEndWithAnotherBatchSizeTrainsTheRemainingEpochs) {
  const model::Model model = small_model();
  const DataSplit data = feature_data();
  const TestFolder folder;
  train(model, data, options_for("1f1b", 1, folder.path()));
  TrainOptions options = options_for("1f1b", 3, folder.path());
  options.mini_batch_size = 50;
  options.resume = true;
  EXPECT_EQ(train(model, data, options).losses.size(), 8u);  // 2 epochs of 4
}

TEST(Trainer, EvaluationsWithinAnEpochChangeNothingThatIsLearned) {
  const model::Model model = small_model();
  const DataSplit data = feature_data();
  const TrainResult whole = train(model, data, options_for("gpipe", 2));
  TrainOptions options = options_for("gpipe", 2);
  options.eval_every = 3;
  options.metric = Metric::Accuracy;
  const TrainResult often = train(model, data, options);
  EXPECT_EQ(often.losses, whole.losses);
  const int64_t epoch_steps = whole.steps / 2;
  ASSERT_GT(epoch_steps, 3);
  std::vector<int64_t> expected;
  for (int64_t step = 1; step <= whole.steps; ++step) {
    if (step % 3 == 0 || step % epoch_steps == 0) expected.push_back(step);
  }
  std::vector<int64_t> steps;
  for (const Evaluation& evaluation : often.evaluations) {
    steps.push_back(evaluation.step);
    const int64_t epochs = evaluation.step / epoch_steps;
    EXPECT_EQ(evaluation.samples, epochs * data.train->size() + evaluation.step % epoch_steps * 16);
    EXPECT_LE(evaluation.accuracy, often.evaluations[often.best.value()].accuracy);
  }
  EXPECT_EQ(steps, expected);
  EXPECT_EQ(often.test_loss, whole.test_loss);
  EXPECT_EQ(often.evaluations.back().loss, whole.test_loss);
  EXPECT_FALSE(often.reached_target);
}

TEST(Trainer, ARunEndsWithTheEvaluationThatReachesItsTarget) {
  const model::Model model = small_model();
  const DataSplit data = feature_data();
  TrainOptions options = options_for("1f1b", 3);
  options.eval_every = 2;
  const TrainResult whole = train(model, data, options);
  ASSERT_GT(whole.evaluations.size(), 4);
  for (const Metric metric : {Metric::Loss, Metric::Perplexity}) {
    options.metric = metric;
    options.target = whole.evaluations[3].of(metric);
    const TrainResult result = train(model, data, options);
    EXPECT_TRUE(result.reached_target);
    EXPECT_FALSE(result.interrupted);
    EXPECT_LE(result.steps, whole.evaluations[3].step);
    EXPECT_EQ(result.steps, result.evaluations.back().step);
    EXPECT_LE(result.evaluations.back().of(metric), *options.target);
    for (size_t i = 0; i + 1 < result.evaluations.size(); ++i)
      EXPECT_GT(result.evaluations[i].of(metric), *options.target);
  }
}

/// 6 numbers, 9 classes.
DataSplit nine_classes() {
  DataSpec spec;
  spec.name = "synthetic";
  spec.sample = labelled({6}, 9);
  spec.train_samples = 90;
  spec.test_samples = 37;
  return load_data(spec);
}

TEST(Trainer, EvaluationsCountTargetsAmongTheFiveLargest) {
  model::ModelBuilder net("nine");
  const model::Model model =
      net.build(net.linear(net.tanh(net.linear(net.input({6}), {.features = 12, .name = "fc1"})),
                           {.features = 9, .name = "fc2"}));
  const DataSplit data = nine_classes();
  for (const ScheduleCase& c : {ScheduleCase{"serial", {1}}, {"gpipe", {2, 1}}}) {
    TrainOptions options = options_for("gpipe", 1);
    options.plan = plan_for(model, c);
    options.metric = Metric::Top5;
    options.keep_weights = true;
    const TrainResult result = train(model, data, options);
    const Batch test = batch_of(*data.test, 0, 37);
    const at::Tensor hidden =
        at::tanh(at::linear(test.inputs[0], result.weights[0][0], result.weights[0][1]));
    const size_t last = result.weights.size() - 1;
    const at::Tensor logits = at::linear(hidden, result.weights[last][0], result.weights[last][1]);
    const at::Tensor five = std::get<1>(logits.topk(5, 1));
    const double hits = five.eq(test.targets.unsqueeze(1)).any(1).sum().item<double>();
    ASSERT_FALSE(result.evaluations.empty());
    EXPECT_NEAR(result.evaluations.back().top5.value(), hits / 37, 1e-9) << c.strategy;
    EXPECT_GE(hits / 37, result.evaluations.back().accuracy.value());
  }
}

TEST(Trainer, EvaluationsAreMadeAmongStepsThatDoNotCount) {
  TrainOptions options = options_for("gpipe", 1);
  options.warmup_steps = 5;
  options.eval_every = 2;
  options.max_steps = 8;
  const TrainResult result = train(small_model(), feature_data(), options);
  std::vector<int64_t> steps;
  for (const Evaluation& evaluation : result.evaluations) steps.push_back(evaluation.step);
  EXPECT_EQ(steps, (std::vector<int64_t>{2, 4, 6, 8}));
  EXPECT_EQ(result.segments, (std::vector<int64_t>{16, 32}));
}

TEST(Trainer, WithoutTestSamplesNothingIsJudged) {
  DataSplit data = feature_data();
  data.test = std::make_shared<SampleSubset>(data.train, std::vector<int64_t>());
  TrainOptions options = options_for("gpipe", 1);
  EXPECT_TRUE(train(small_model(), data, options).evaluations.empty());
  options.eval_every = 2;
  EXPECT_THAT(message_of<ConfigError>([&] { train(small_model(), data, options); }),
              testing::HasSubstr("need test samples, found none"));
}

TEST(Trainer, AMetricThatTheLossDoesNotHaveIsRefused) {
  const model::Model model = small_model();
  TrainOptions options = options_for("gpipe", 1);
  options.loss.name = "mean-squared-error";
  DataSplit data = feature_data();
  SampleSpec sample = samples_for(model, options.loss);
  const auto numbers = std::make_shared<TensorDataset>(
      "numbers", sample, model::Tensors{at::zeros({32, 6})}, at::zeros({32, 3}));
  data.train = numbers;
  data.test = numbers;
  for (const auto& [metric, words] :
       {std::pair(Metric::Accuracy, "the metric accuracy needs a loss with right and wrong"),
        std::pair(Metric::Perplexity, "the metric perplexity needs the loss cross-entropy"),
        std::pair(Metric::Top5, "the metric top5 needs the loss cross-entropy and more than"),
        std::pair(Metric::MeteorStem, "the metric meteor-stem needs sentences to write")}) {
    options.metric = metric;
    EXPECT_THAT(message_of<ConfigError>([&] { train(model, data, options); }),
                testing::HasSubstr(words));
  }
}

TEST(Trainer, AFinishedRunOnlyEvaluates) {
  const TestFolder folder;
  const TrainResult done =
      train(small_model(), feature_data(), options_for("1f1b", 2, folder.path()));
  TrainOptions options = options_for("1f1b", 2, folder.path());
  options.resume = true;
  const TrainResult again = train(small_model(), feature_data(), options);
  EXPECT_TRUE(again.losses.empty());
  EXPECT_EQ(again.steps, done.steps);
  EXPECT_EQ(again.test_accuracy, done.test_accuracy);
}

TEST(Trainer, ARunResumedFromACheckpointByItsNameSavesBesideIt) {
  const model::Model model = small_model();
  const TestFolder folder;
  train(model, feature_data(), options_for("1f1b", 2, folder.path()));  // 13 steps each
  TrainOptions options = options_for("1f1b", 3, folder / "step-000000013");
  options.resume = true;
  EXPECT_EQ(train(model, feature_data(), options).losses.size(), 26u);
  EXPECT_EQ(load_checkpoint(folder.path(), model).step, 39);
  EXPECT_FALSE(std::filesystem::exists(folder / "step-000000013"));  // two are kept
  options.checkpoint = folder / "step-000000026";
  options.resume = false;
  EXPECT_THROW(train(model, feature_data(), options), ConfigError);
}

TEST(Trainer, LeavesOutTheLastStepOfAnEpochThatIsNotFull) {
  const model::Model model = small_model();
  const DataSplit data = feature_data();
  TrainOptions options = options_for("1f1b", 3);
  const int64_t full = data.train->size() / options.mini_batch_size;
  ASSERT_NE(full * options.mini_batch_size, data.train->size());
  EXPECT_EQ(train(model, data, options).steps, 3 * (full + 1));
  options.drop_last = true;
  EXPECT_EQ(train(model, data, options).steps, 3 * full);
  options.max_steps = 2 * full + 1;
  EXPECT_EQ(train(model, data, options).steps, 2 * full + 1);
  EXPECT_TRUE(check_against_serial(model, data, options, 2 * full + 1).equal());
  options.mini_batch_size = data.train->size() + 1;
  EXPECT_THAT([&] { train(model, data, options); },
              ::testing::ThrowsMessage<ConfigError>(::testing::HasSubstr("an epoch has no step")));
}

TEST(Trainer, ADivergingLossEndsTheRunAndKeepsTheCheckpoint) {
  const TestFolder folder;
  train(small_model(), feature_data(), options_for("1f1b", 1, folder.path()));
  TrainOptions options = options_for("1f1b", 40, folder.path());
  options.resume = true;
  options.learning_rate.base = 1e38;
  EXPECT_THROW(train(small_model(), feature_data(), options), NoAnswer);
  EXPECT_EQ(load_checkpoint(folder.path(), small_model()).epoch, 1);
}

TEST(Trainer, UnusableOptionsAreRefused) {
  const model::Model model = small_model();
  const DataSplit data = feature_data();
  TrainOptions options = options_for("1f1b", 1);
  options.mini_batch_size = 0;
  EXPECT_THROW(train(model, data, options), ConfigError);
  options = options_for("1f1b", 1);
  options.plan.stages[0].layers.pop_back();
  EXPECT_THROW(train(model, data, options), ConfigError);
  options = options_for("1f1b", 1);
  options.plan.stages[0].replicas = 1'000'000'000;
  EXPECT_THROW(train(model, data, options), ConfigError);
  options = options_for("gpipe", 1);
  options.plan.weights = plan::WeightPolicy::Stash;
  EXPECT_THROW(train(model, data, options), ConfigError);
}

TEST(BatchCutTest, EverySampleIsInExactlyOneMicroBatchAndSizesDifferByAtMostOne) {
  for (int64_t samples = 0; samples <= 30; ++samples) {
    for (int64_t size = 1; size <= 12; ++size) {
      for (int64_t parts = 1; parts <= 13; ++parts) {
        const BatchCut cut(samples, size, parts);
        int64_t next = 0;
        for (int64_t b = 0; b < cut.num_micro_batches(); ++b) {
          const auto range = cut.range(MicroBatchId{b});
          ASSERT_EQ(range.begin, next);
          ASSERT_GT(range.end, range.begin);
          const bool full = b / cut.micro_batches < samples / size;
          if (full) {
            ASSERT_LE(std::abs((range.end - range.begin) * cut.micro_batches - size),
                      cut.micro_batches);
          }
          next = range.end;
        }
        ASSERT_EQ(next, samples);
      }
    }
  }
}

/// Puts a file where the folder of checkpoints is, at the end of the first epoch.
class BreakFolder : public TrainObserver {
 public:
  explicit BreakFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}
  void on_epoch(const EpochSummary& summary) override {
    epochs = summary.epoch + 1;
    std::error_code ignored;
    while (epochs == 1 && !std::filesystem::is_regular_file(folder_)) {
      std::filesystem::remove_all(folder_, ignored);
      write_test_file(folder_, "");
    }
  }
  int64_t epochs = 0;

 private:
  std::filesystem::path folder_;
};

TEST(Trainer, ACheckpointThatCannotBeWrittenEndsTheRunSoon) {
  const TestFolder folder;
  TrainOptions options = options_for("gpipe", 100'000, folder / "saved");
  BreakFolder observer(folder / "saved");
  options.observer = &observer;
  EXPECT_THAT(message_of<Error>([&] { train(small_model(), feature_data(), options); }),
              testing::HasSubstr("saved"));
  EXPECT_LT(observer.epochs, 10'000);
}

/// Makes gradients large.
class Amplifying : public model::Layer {
 public:
  std::string kind() const override { return "amplifying"; }
  std::vector<model::Shape> output_shapes(const std::vector<model::Shape>& inputs) const override {
    return inputs;
  }
  model::Tensors forward(model::TensorSpan, model::MutableTensorSpan, model::TensorSpan inputs,
                         const model::ForwardContext&) const override {
    return {inputs[0] * 1e7};
  }
};

TEST(Trainer, GradientsBeyondFloat16EndTheRunWithAdvice) {
  model::ModelBuilder net("amplifying");
  const model::Value x = net.linear(net.input({6}), {.features = 3});
  const model::Model model = net.build(net.apply(std::make_shared<Amplifying>(), {x}).front());
  const auto trained = [&](const char* precision) -> std::string {
    TrainOptions options;
    options.plan = plan_for(model, "dp", {2}, 2);
    options.plan.gradient_precision = plan::parse_sync_precision(precision);
    options.mini_batch_size = 20;
    options.learning_rate.base = 1e-12;
    try {
      train(model, feature_data(), options);
    } catch (const Error& error) {
      return error.what();
    }
    return "trained";
  };
  EXPECT_EQ(trained("float32"), "trained");
  EXPECT_EQ(trained("bfloat16"), "trained");
  EXPECT_THAT(trained("float16"),
              ::testing::HasSubstr("a gradient beyond 65504 becomes infinite, and bfloat16 has no "
                                   "such limit"));
}

TEST(Trainer, WeightsThatAreNoLongerFiniteAreNotSaved) {
  const TestFolder folder;
  const model::Model model = branching_model();
  const DataSplit data = feature_data(16);
  TrainOptions options{.plan = plan_for(model, "gpipe", {1, 1}, 2), .mini_batch_size = 16};
  options.learning_rate.base = 1e300;
  options.checkpoint = folder.path();
  options.evaluate = false;
  // One step, whose loss was finite.
  EXPECT_THAT([&] { train(model, data, options); },
              testing::ThrowsMessage<RuntimeError>(testing::HasSubstr("are no longer finite")));
  EXPECT_FALSE(has_checkpoint(folder.path()));
}

/// Five epochs of 200 samples, in steps of 16.
TrainOptions judged_options(const std::string& schedule) {
  TrainOptions options = options_for("gpipe", 5);
  options.learning_rate = {.base = 0.05, .schedule = schedule};
  return options;
}

TEST(Trainer, ARateOnAPlateauFallsWithEvaluations) {
  // Nothing but the first evaluation is an improvement.
  const std::string never = "ReduceLROnPlateau,patience=0,threshold=0.99,factor=0.5";
  TrainOptions options = judged_options(never);
  const model::Model model = small_model();
  const DataSplit data = feature_data();
  const std::vector<double> rates = train(model, data, options).learning_rates;
  ASSERT_EQ(rates.size(), 65);
  for (size_t step = 0; step < rates.size(); ++step) {
    const size_t epoch = step / 13;
    EXPECT_DOUBLE_EQ(rates[step], 0.05 * std::pow(0.5, epoch < 2 ? 0 : epoch - 1)) << step;
  }
  options.eval_every = 5;  // and after each epoch
  const TrainResult often = train(model, data, options);
  EXPECT_DOUBLE_EQ(often.learning_rates[9], 0.05);
  EXPECT_DOUBLE_EQ(often.learning_rates[10], 0.025);
  EXPECT_DOUBLE_EQ(often.learning_rates[13], 0.0125);
  options = judged_options("ReduceLROnPlateau");
  EXPECT_EQ(train(model, data, options).losses,
            train(model, data, judged_options("constant")).losses);
}

TEST(Trainer, EvaluationsTakeTheMeanOfTheWeightsAndTrainingDoesNot) {
  const model::Model model = small_model();
  const DataSplit data = feature_data();
  TrainOptions options = judged_options("constant");
  options.keep_weights = true;
  const TrainResult plain = train(model, data, options);
  options.mean.ema = 0.5;
  const TrainResult ema = train(model, data, options);
  options.mean = {.swa_start = 10};
  const TrainResult swa = train(model, data, options);
  for (const TrainResult* other : {&ema, &swa}) {
    EXPECT_EQ(other->losses, plain.losses);
    ASSERT_EQ(other->evaluations.size(), plain.evaluations.size());
    EXPECT_NE(other->evaluations.back().loss, plain.evaluations.back().loss);
    for (size_t l = 0; l < plain.weights.size(); ++l) {
      for (size_t w = 0; w < plain.weights[l].size(); ++w)
        EXPECT_TRUE(other->weights[l][w].equal(plain.weights[l][w])) << l;
    }
  }
  EXPECT_NE(ema.evaluations.back().loss, swa.evaluations.back().loss);
  options.mean = {.swa_start = 65};  // not yet: the mean is the weights
  EXPECT_EQ(train(model, data, options).evaluations.back().loss, plain.evaluations.back().loss);
}

TEST(Trainer, AMeanBeginsWhereTheMetricGetsWorse) {
  const model::Model model = small_model();
  const TestFolder folder;
  TrainOptions options = judged_options("constant");
  options.checkpoint = folder.path();
  options.optimizer.maximize = true;  // every evaluation is worse than the one before
  options.learning_rate.base = 0.001;
  options.mean.swa_patience = 1;
  train(model, feature_data(), options);
  const auto mean = newest_position(folder.path(), model).mean;
  ASSERT_TRUE(mean);
  EXPECT_EQ(mean->began, 3 * 13);  // the third evaluation is worse than the first
}

TEST(Trainer, MeansAndMomentaThatCannotBeAreRefused) {
  const model::Model model = small_model();
  const DataSplit data = feature_data();
  TrainOptions options = judged_options("constant");
  options.mean.ema = 1;
  EXPECT_THROW(train(model, data, options), ConfigError);
  options.mean = {.ema = 0.5, .swa_start = 3};
  EXPECT_THROW(train(model, data, options), ConfigError);
  options = judged_options("OneCycleLR,cycle_momentum=yes");
  options.optimizer.momentum = 0;
  EXPECT_THROW(train(model, data, options), ConfigError);
  options.learning_rate.schedule = "OneCycleLR";
  EXPECT_NO_THROW(train(model, data, options));
}

}  // namespace
}  // namespace penstock::train
