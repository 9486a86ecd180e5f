// Whole training runs over several ranks, which are threads here that share memory or are joined by
// sockets: the files that they write together equal those of one rank, byte for byte, and runs can
// continue with another number of ranks.
#include "penstock/runtime/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/plan/sync_precision.h"
#include "penstock/runtime/fabric/testing_ranks.h"
#include "penstock/train/checkpoint/checkpoint.h"
#include "penstock/train/checkpoint/test_folder.h"
#include "penstock/train/test_training.h"
#include "penstock/util/error.h"

namespace penstock::train {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

using runtime::testing::on_ranks;
using runtime::testing::rank_rigs;

class TrainRanks : public ::testing::TestWithParam<runtime::testing::RankRig> {};
INSTANTIATE_TEST_SUITE_P(Fabrics, TrainRanks, ::testing::ValuesIn(rank_rigs()),
                         [](const auto& rig) { return rig.param.name; });

TrainOptions options_of(const model::Model& model, const std::filesystem::path& folder) {
  TrainOptions options;
  options.plan = plan_for(model, "gpipe", {2, 1}, 4);
  options.mini_batch_size = 20;
  options.epochs = 2;
  options.checkpoint = folder;
  options.max_grad_norm = 1;
  return options;
}

std::map<std::string, std::string> files_in(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file())
      files[std::filesystem::relative(entry.path(), folder)] = read_test_file(entry.path());
  }
  return files;
}

TEST_P(TrainRanks, CheckpointsAndLossesAreThoseOfOneRank) {
  const model::Model model = branching_model(0.2, /*tied=*/true);
  const DataSplit data = feature_data();
  const TestFolder alone;
  const TrainResult expected = train(model, data, options_of(model, alone.path()));
  for (const std::vector<int>& ranks :
       {std::vector<int>{0, 1, 2}, std::vector<int>{0, 0, 1}, std::vector<int>{1, 2, 0}}) {
    const TestFolder together;
    std::vector<TrainResult> results(3);
    const auto failures = on_ranks(GetParam(), ranks, [&](runtime::World& world, size_t rank) {
      TrainOptions options = options_of(model, together.path());
      options.world = &world;
      results[rank] = train(model, data, options);
    });
    ASSERT_THAT(failures, Each(""));
    for (size_t r = 0; r < failures.size(); ++r) {
      EXPECT_EQ(results[r].losses, expected.losses);
      EXPECT_EQ(results[r].grad_norms, expected.grad_norms);
      EXPECT_EQ(results[r].test_accuracy, expected.test_accuracy);
      EXPECT_EQ(results[r].ranks.size(), r == 0 ? failures.size() : 0u);
      EXPECT_GE(results[r].idle_share, 0.0);
      EXPECT_LT(results[r].idle_share, 1.0);
    }
    // Rank 0 has the lanes of all.
    for (const auto& events : results[0].timeline.workers) EXPECT_FALSE(events.empty());
    EXPECT_EQ(results[0].timeline.active_workers(), 3);
    EXPECT_EQ(results[1].timeline.active_workers(), std::count(ranks.begin(), ranks.end(), 1));
    const auto found = files_in(together.path());
    EXPECT_GT(found.size(), 8u);
    EXPECT_TRUE(found == files_in(alone.path()));
  }
}

/// Tied weights that stages share, a clipped norm, and gradients that travel in 16 bits.
TEST_P(TrainRanks, CheckpointsInEveryPrecisionAreThoseOfOneRank) {
  const model::Model model = branching_model(0.2, /*tied=*/true);
  const DataSplit data = feature_data();
  const auto options_in = [&](const char* precision, const std::filesystem::path& folder) {
    TrainOptions options = options_of(model, folder);
    options.plan = plan_for(model, "gpipe", {2, 2}, 4);
    options.plan.gradient_precision = plan::parse_sync_precision(precision);
    return options;
  };
  std::map<std::string, std::vector<double>> losses;
  for (const char* precision : {"float32", "bfloat16", "float16"}) {
    SCOPED_TRACE(precision);
    const TestFolder alone;
    losses[precision] = train(model, data, options_in(precision, alone.path())).losses;
    for (const std::vector<int>& ranks :
         {std::vector<int>{0, 0, 1, 1}, std::vector<int>{0, 1, 0, 1}, std::vector<int>{0, 1, 2, 2},
          std::vector<int>{0, 1, 2, 3}}) {
      const TestFolder together;
      ASSERT_THAT(on_ranks(GetParam(), ranks,
                           [&](runtime::World& world, size_t) {
                             TrainOptions options = options_in(precision, together.path());
                             options.world = &world;
                             EXPECT_EQ(train(model, data, options).losses, losses[precision]);
                           }),
                  Each(""));
      EXPECT_TRUE(files_in(together.path()) == files_in(alone.path()));
    }
  }
  EXPECT_NE(losses["bfloat16"], losses["float32"]);
  EXPECT_NE(losses["bfloat16"], losses["float16"]);
}

TEST_P(TrainRanks, ContinueWithAnotherNumberOfRanks) {
  const model::Model model = branching_model(0.2, /*tied=*/true);
  const DataSplit data = feature_data();
  const TestFolder alone;
  const TrainResult whole = train(model, data, options_of(model, alone.path()));
  const TestFolder folder;
  TrainOptions first = options_of(model, folder.path());
  first.epochs = 1;
  ASSERT_THAT(on_ranks(GetParam(), {0, 1, 1},
                       [&](runtime::World& world, size_t) {
                         TrainOptions options = first;
                         options.world = &world;
                         train(model, data, options);
                       }),
              Each(""));
  std::vector<TrainResult> results(3);
  ASSERT_THAT(on_ranks(GetParam(), {0, 1, 2},
                       [&](runtime::World& world, size_t rank) {
                         TrainOptions options = options_of(model, folder.path());
                         options.resume = true;
                         options.world = &world;
                         results[rank] = train(model, data, options);
                       }),
              Each(""));
  const std::vector<double> second(whole.losses.begin() + std::ssize(whole.losses) / 2,
                                   whole.losses.end());
  for (const TrainResult& result : results) EXPECT_EQ(result.losses, second);
}

TEST_P(TrainRanks, AStopOnAnyRankEndsAllAfterTheSameStep) {
  const model::Model model = branching_model();
  const DataSplit data = feature_data();
  struct StopAfter : TrainObserver {
    void on_mini_batch(const Progress& progress) override { *stop = progress.mini_batch >= 3; }
    std::atomic<bool>* stop = nullptr;
  };
  std::vector<int64_t> steps(3, -1);
  std::vector<std::atomic<bool>> stops(3);
  StopAfter observer;
  observer.stop = &stops[2];  // rank 0 sees the losses, rank 2 is told to stop
  const auto failures = on_ranks(GetParam(), {0, 1, 2}, [&](runtime::World& world, size_t rank) {
    TrainOptions options = options_of(model, {});
    options.epochs = 40;
    options.world = &world;
    options.stop = &stops[rank];
    options.observer = rank == 0 ? &observer : nullptr;
    const TrainResult result = train(model, data, options);
    EXPECT_TRUE(result.interrupted);
    steps[rank] = result.steps;
  });
  EXPECT_THAT(failures, Each(""));
  EXPECT_GE(steps[0], 3);
  EXPECT_THAT(steps, Each(steps[0]));
}

TEST_P(TrainRanks, ALossThatIsNotANumberEndsAll) {
  const model::Model model = branching_model();
  const auto failures = on_ranks(GetParam(), {0, 1, 2}, [&](runtime::World& world, size_t) {
    TrainOptions options = options_of(model, {});
    options.max_grad_norm = 0;
    // Steps of this size make weights infinite, whichever kernels multiply them.
    options.learning_rate.base = 1e38;
    options.world = &world;
    train(model, feature_data(), options);
  });
  EXPECT_THAT(failures, Each(HasSubstr("the loss is no longer finite")));
}

TEST_P(TrainRanks, WhatFailsOnOneRankFailsOnAll) {
  const auto failures = on_ranks(GetParam(), {0, 1, 2}, [&](runtime::World& world, size_t rank) {
    const runtime::Ranks ranks{.world = &world, .deadline = std::chrono::seconds(20)};
    EXPECT_EQ(runtime::together(ranks, [&] { return std::string(rank, 'x'); }),
              (std::vector<std::string>{"", "x", "xx"}));
    runtime::together(ranks, [&]() -> std::string {
      if (rank == 1) throw ConfigError("the disk is full");
      return "";
    });
  });
  EXPECT_EQ(failures, (std::vector<std::string>{"rank 1: the disk is full", "the disk is full",
                                                "rank 1: the disk is full"}));
}

TEST_P(TrainRanks, AFolderThatCannotBeMadeFailsOnAll) {
  const model::Model model = branching_model();
  const TestFolder folder;
  write_test_file(folder / "file", "");
  const auto failures = on_ranks(GetParam(), {0, 1, 2}, [&](runtime::World& world, size_t) {
    TrainOptions options = options_of(model, folder / "file/checkpoints");
    options.world = &world;
    train(model, feature_data(), options);
  });
  EXPECT_THAT(failures, Each(HasSubstr("checkpoints")));
}

}  // namespace
}  // namespace penstock::train
