// Micro-batches on which a model cannot train are refused before the first step.
#include "penstock/train/refused_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/train/checkpoint/test_folder.h"
#include "penstock/train/test_training.h"
#include "penstock/util/error.h"

namespace penstock::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Batch normalisation of `side` x `side` numbers per sample and channel.
model::Model normalising(int64_t side) {
  model::ModelBuilder net("normalising");
  model::Value x = net.input({2, 4, 4});
  x = net.adaptive_avg_pool2d(x, side);
  x = net.batch_norm2d(x, {.name = "bn"});
  return net.build(net.linear(net.flatten(x), {.features = 3}));
}

/// "" where no micro-batch is refused.
std::string refusal(const model::Model& model, int64_t samples, int64_t batch, int64_t parts,
                    bool drop_last = false, int64_t steps = 0) {
  TrainOptions options{.mini_batch_size = batch, .max_steps = steps, .drop_last = drop_last};
  options.plan.micro_batches = parts;
  const auto refused = refused_batch(model, options, samples);
  return refused ? explain(*refused, "--drop-last") : "";
}

TEST(RefusedBatch, ALastStepOfOneSampleIsKnownBeforeTheStart) {
  const model::Model model = normalising(1);
  EXPECT_EQ(refusal(model, 257, 64, 1),
            "the last step of an epoch would have 1 of 257 training samples, and layer 'bn' cannot "
            "train on a micro-batch of 1 sample: batch normalisation needs more than one number "
            "per channel in training; leave out what does not fill a step (--drop-last), or choose "
            "another batch size");
  EXPECT_EQ(refusal(model, 257, 64, 1, /*drop_last=*/true), "");
  EXPECT_EQ(refusal(model, 256, 64, 1), "");
  EXPECT_EQ(refusal(model, 258, 64, 1), "");
  EXPECT_EQ(refusal(model, 257, 64, 1, false, /*steps=*/4), "") << "the run ends before";
  EXPECT_NE(refusal(model, 257, 64, 1, false, /*steps=*/5), "");
  EXPECT_EQ(refusal(model, 273, 64, 4), "") << "17 samples are 8 and 9";
}

TEST(RefusedBatch, ABatchOfOneAndMicroBatchesOfOneAre) {
  const model::Model model = normalising(1);
  EXPECT_THAT(refusal(model, 10, 1, 1),
              AllOf(HasSubstr("a step of 1 sample in 1 micro-batch: layer 'bn'"),
                    HasSubstr("expected a larger batch size")));
  EXPECT_THAT(refusal(model, 64, 4, 4), HasSubstr("expected fewer micro-batches or a larger"));
  EXPECT_THAT(refusal(model, 64, 6, 4), HasSubstr("a step of 6 samples in 4 micro-batches"));
  EXPECT_EQ(refusal(model, 64, 8, 4), "");
  EXPECT_THAT(refusal(model, 1, 64, 1), HasSubstr("a step of 1 sample"));
}

TEST(RefusedBatch, SeveralNumbersPerChannelAreEnough) {
  EXPECT_EQ(refusal(normalising(2), 257, 64, 1), "");
  EXPECT_EQ(refusal(normalising(2), 10, 1, 1), "");
  EXPECT_EQ(refusal(branching_model(), 257, 64, 1), "");
}

TEST(RefusedBatch, NothingIsTrainedOrSaved) {
  const model::Model model = normalising(1);
  DataSpec spec;
  spec.name = "synthetic";
  spec.sample = labelled({2, 4, 4}, 3);
  spec.train_samples = 17;
  const DataSplit data = load_data(spec);
  const TestFolder folder;
  TrainOptions options{.plan = plan_for(model, "serial", {1}, 1), .mini_batch_size = 8};
  options.checkpoint = folder / "saved";
  EXPECT_THAT(message_of<ConfigError>([&] { train(model, data, options); }),
              HasSubstr("(drop_last)"));
  EXPECT_FALSE(std::filesystem::exists(folder / "saved"));
  Session session(model, options);
  const auto order = epoch_order(17, 1, 0, true);
  EXPECT_THROW(session.train(*data.train, order, 0, 8), ConfigError);
  EXPECT_THROW(session.step(batch_of(*data.train, 0, 1)), ConfigError);
  EXPECT_THROW(session.check_step(1), ConfigError);
  EXPECT_NO_THROW(session.check_step(2));
  EXPECT_EQ(session.steps(), 0);
  EXPECT_EQ(session.evaluate(*data.train, 1).samples, 17) << "evaluation needs no statistics";
}

}  // namespace
}  // namespace penstock::train
