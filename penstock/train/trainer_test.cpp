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
#include "penstock/train/testing_small_run.h"
#include "penstock/util/error.h"

namespace penstock::train {
namespace {

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

}  // namespace
}  // namespace penstock::train
