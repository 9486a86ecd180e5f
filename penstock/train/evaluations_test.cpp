// Evaluations of whole runs: what they count, what they change, when a run ends with them.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>
#include <sstream>

#include "penstock/model/builder.h"
#include "penstock/train/checkpoint/checkpoint.h"
#include "penstock/train/checkpoint/test_folder.h"
#include "penstock/train/data/sample_subset.h"
#include "penstock/train/data/tensor_dataset.h"
#include "penstock/train/evaluation_record.h"
#include "penstock/train/test_training.h"
#include "penstock/train/testing_small_run.h"
#include "penstock/train/trainer.h"
#include "penstock/util/error.h"
#include "penstock/util/process/log.h"

namespace penstock::train {
namespace {

TEST(Evaluations, WithinAnEpochTheyChangeNothingThatIsLearned) {
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

TEST(Evaluations, CheckpointsWithinAnEpochAndTheBestChangeNothing) {
  const model::Model model = small_model();
  const DataSplit data = feature_data();
  TrainOptions options = options_for("gpipe", 2);
  const TrainResult whole = train(model, data, options);
  const TestFolder folder;
  options.eval_every = 3;
  options.save_every = 2;
  options.keep_last = 1;
  options.keep_best = true;
  options.resume = true;
  options.log_folder = folder / "log";
  options.checkpoint = folder / "run";
  std::vector<double> losses;
  for (int64_t most = 5; losses.size() < whole.losses.size(); most += 5) {
    options.max_steps = most;
    const TrainResult part = train(model, data, options);
    ASSERT_FALSE(part.losses.empty());
    losses.insert(losses.end(), part.losses.begin(), part.losses.end());
  }
  EXPECT_EQ(losses, whole.losses);
  EvaluationRecord record(Metric::Loss);
  record.read(folder / "run", whole.steps);
  EXPECT_EQ(record.all().back().loss, whole.test_loss);
  const Checkpoint best = load_checkpoint(folder / "run" / "best", model);
  EXPECT_EQ(best.step, record.best_step());
  EXPECT_EQ(load_checkpoint(folder / "run", model).step, whole.steps);
  EXPECT_LE(list_checkpoints(folder / "run").size(), 2U);
  std::istringstream log(read_test_file(folder / "log/log.csv"));
  std::vector<int64_t> steps;
  for (std::string line; std::getline(log, line);) {
    const bool is_step = line.find(",,,,,,") == std::string::npos;
    if (is_step && line.front() != 's') steps.push_back(std::stoll(line));
  }
  std::vector<int64_t> all(whole.losses.size());
  std::iota(all.begin(), all.end(), 1);
  EXPECT_EQ(steps, all);
}

TEST(Evaluations, TheBestIsAmongCheckpointsThatAreThere) {
  const model::Model model = small_model();
  const DataSplit data = feature_data();
  const TestFolder folder;
  TrainOptions options = options_for("gpipe", 2);
  options.checkpoint = folder.path();
  options.keep_last = 1;
  options.resume = true;
  const int64_t epoch_steps = train(model, data, options).steps / 2;
  // Its evaluation is the best of all, and its checkpoint is not there.
  EvaluationRecord record(Metric::Loss);
  record.add({.step = epoch_steps, .loss = 1e-9});
  record.write(folder.path());
  options.keep_best = true;
  options.epochs = 3;
  train(model, data, options);
  EXPECT_EQ(load_checkpoint(folder / "best", model).step, 3 * epoch_steps);
  // A run that keeps no best one leaves that of the link.
  options.keep_best = false;
  options.epochs = 5;
  train(model, data, options);
  EXPECT_EQ(load_checkpoint(folder / "best", model).step, 3 * epoch_steps);
  EXPECT_EQ(list_checkpoints(folder.path()).size(), 2U);
}

TEST(Evaluations, TheBestIsSavedOnce) {
  TrainOptions options = options_for("gpipe", 2);
  const TestFolder folder;
  options.checkpoint = folder.path();
  options.learning_rate.schedule = "ReduceLROnPlateau";
  options.eval_every = 3;
  options.save_every = 3;
  options.keep_best = true;
  std::multiset<std::string> saved;
  set_log_sink([&](LogLevel, std::string_view message) {
    if (message.starts_with("checkpoint: ")) saved.emplace(message);
  });
  train(small_model(), feature_data(), options);
  set_log_sink({});
  EXPECT_GT(saved.size(), 2U);
  for (const std::string& message : saved) EXPECT_EQ(saved.count(message), 1U) << message;
}

TEST(Evaluations, ARunEndsWithTheEvaluationThatReachesItsTarget) {
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

TEST(Evaluations, CountTargetsAmongTheFiveLargest) {
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

TEST(Evaluations, AreMadeAmongStepsThatDoNotCount) {
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

TEST(Evaluations, WithoutTestSamplesNothingIsJudged) {
  DataSplit data = feature_data();
  data.test = std::make_shared<SampleSubset>(data.train, std::vector<int64_t>());
  TrainOptions options = options_for("gpipe", 1);
  EXPECT_TRUE(train(small_model(), data, options).evaluations.empty());
  options.eval_every = 2;
  EXPECT_THAT(message_of<ConfigError>([&] { train(small_model(), data, options); }),
              testing::HasSubstr("need test samples, found none"));
}

TEST(Evaluations, AMetricThatTheLossDoesNotHaveIsRefused) {
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

/// Five epochs of 200 samples, in steps of 16.
TrainOptions judged_options(const std::string& schedule) {
  TrainOptions options = options_for("gpipe", 5);
  options.learning_rate = {.base = 0.05, .schedule = schedule};
  return options;
}

TEST(Evaluations, ARateOnAPlateauFallsWithEvaluations) {
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

TEST(Evaluations, AResumedPlateauTakesAnotherRateTimesItsFalls) {
  const model::Model model = small_model();
  const DataSplit data = feature_data();
  const TestFolder folder;
  TrainOptions options = judged_options("ReduceLROnPlateau,patience=0,threshold=0.99,factor=0.5");
  options.epochs = 3;
  options.checkpoint = folder.path();
  train(model, data, options);
  options.resume = true;
  options.epochs = 5;
  options.learning_rate.base = 0.01;
  const TrainResult resumed = train(model, data, options);
  ASSERT_EQ(resumed.learning_rates.size(), 2 * 13);
  // After the second and the third epoch it has fallen.
  EXPECT_DOUBLE_EQ(resumed.learning_rates.front(), 0.01 * 0.25);
  EXPECT_DOUBLE_EQ(resumed.learning_rates.back(), 0.01 * 0.125);
  PlateauState old{.rate = 0.3};  // of a manifest that does not say where it began
  begin_at(0.1, old);
  EXPECT_EQ(on_plateau(0.1, old), 0.1 * (0.3 / 0.1));
}

TEST(Evaluations, TheMeanOfTheWeightsIsTakenAndTrainingDoesNotTakeIt) {
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

TEST(Evaluations, AMeanBeginsWhereTheMetricGetsWorse) {
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

TEST(Evaluations, MeansAndMomentaThatCannotBeAreRefused) {
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
