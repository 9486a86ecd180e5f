#include "penstock/train/checkpoint/checkpoint_writer.h"

#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "penstock/runtime/fabric/local/local_world.h"
#include "penstock/train/checkpoint/test_folder.h"
#include "penstock/train/test_training.h"
#include "penstock/util/error.h"

namespace penstock::train {
namespace {

/// What a fresh training would save after so many steps.
Checkpoint checkpoint_of(const model::Model& model, int64_t step) {
  Checkpoint checkpoint{
      {.model = model.name(), .step = step, .seed = 1, .mini_batch_size = 1, .optimizer = "sgd"},
      {},
      {}};
  for (int i = 0; i < model.graph().num_layers(); ++i)
    checkpoint.layers.push_back({.weights = model.initial_weights(LayerId{i}, 1),
                                 .buffers = model.initial_buffers(LayerId{i})});
  return checkpoint;
}

/// Of a rank that has no layer.
Checkpoint without_layers(Checkpoint checkpoint) {
  for (LayerState& layer : checkpoint.layers) layer = {.here = false};
  return checkpoint;
}

/// Two ranks: nothing is written before both save, so that what happens in between is known.
class CheckpointWriting : public ::testing::Test {
 protected:
  CheckpointWriting() {
    std::thread other([this] { second_.emplace(folder_.path(), model_, 2, ranks(1)); });
    first_.emplace(folder_.path(), model_, 2, ranks(0));
    other.join();
  }
  runtime::Ranks ranks(size_t rank) const {
    return {.world = worlds_[rank].get(), .deadline = std::chrono::seconds(20)};
  }

  const model::Model model_ = branching_model();
  const TestFolder folder_;
  const std::vector<std::unique_ptr<runtime::World>> worlds_ = runtime::make_local_ranks({0, 1});
  std::optional<CheckpointWriter> first_;
  std::optional<CheckpointWriter> second_;
};

TEST_F(CheckpointWriting, SavesTheStateOfTheCall) {
  Checkpoint checkpoint = checkpoint_of(model_, 5);
  const at::Tensor before = checkpoint.layers[0].weights[0].clone();
  first_->save(checkpoint);
  checkpoint.layers[0].weights[0].zero_();  // as the next steps do
  EXPECT_FALSE(has_checkpoint(folder_.path()));
  second_->save(without_layers(checkpoint));
  EXPECT_EQ(first_->finish(), folder_ / "step-000000005");
  EXPECT_TRUE(second_->finish());
  const Checkpoint loaded = load_checkpoint(folder_.path(), model_);
  EXPECT_EQ(loaded.step, 5);
  EXPECT_TRUE(loaded.layers[0].weights[0].equal(before));
}

TEST_F(CheckpointWriting, ThrowsTheFailureOnAllRanks) {
  std::filesystem::remove_all(folder_.path());
  write_test_file(folder_.path(), "");
  const Checkpoint checkpoint = checkpoint_of(model_, 5);
  first_->save(checkpoint);
  second_->save(without_layers(checkpoint));
  EXPECT_THAT(message_of<ConfigError>([&] { second_->finish(); }),
              testing::HasSubstr("rank 0: cannot make the checkpoint folder"));
  EXPECT_THAT(message_of<ConfigError>([&] { first_->finish(); }),
              testing::StartsWith("cannot make the checkpoint folder"));
  EXPECT_TRUE(first_->has_failed());
  EXPECT_TRUE(second_->has_failed());
  EXPECT_FALSE(first_->finish());  // told once
}

TEST_F(CheckpointWriting, IsBesideWhatTheRanksSayMeanwhile) {
  const Checkpoint checkpoint = checkpoint_of(model_, 5);
  first_->save(checkpoint);
  const auto together = [&](size_t rank) {
    return runtime::together(ranks(rank), [&] { return std::to_string(rank); });
  };
  std::thread other([&] {
    EXPECT_THAT(together(1), testing::ElementsAre("0", "1"));
    second_->save(without_layers(checkpoint));
    EXPECT_THAT(together(1), testing::ElementsAre("0", "1"));
  });
  EXPECT_THAT(together(0), testing::ElementsAre("0", "1"));
  EXPECT_THAT(together(0), testing::ElementsAre("0", "1"));
  other.join();
  EXPECT_EQ(first_->finish(), folder_ / "step-000000005");
}

TEST(CheckpointWriter, ItsEndWaitsForTheDisk) {
  const model::Model model = branching_model();
  const TestFolder folder;
  CheckpointWriter(folder.path(), model, 2, {}).save(checkpoint_of(model, 7));
  EXPECT_EQ(newest_position(folder.path(), model).step, 7);
}

}  // namespace
}  // namespace penstock::train
