// Whole training runs over several ranks, which are threads here: the files that they write
// together are those of one rank, byte for byte, and runs go on with another number of ranks.
#include "penstock/runtime/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "penstock/runtime/fabric/local/local_world.h"
#include "penstock/train/checkpoint/checkpoint.h"
#include "penstock/train/checkpoint/test_folder.h"
#include "penstock/train/test_training.h"
#include "penstock/util/error.h"

namespace penstock::train {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

std::vector<std::string> on_ranks(
    const std::vector<int>& rank_of_worker,
    const std::function<void(runtime::World& world, size_t rank)>& body) {
  const auto worlds = runtime::make_local_ranks(rank_of_worker);
  std::vector<std::string> failures(worlds.size());
  std::vector<std::jthread> threads;
  for (size_t r = 0; r < worlds.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        body(*worlds[r], r);
      } catch (const std::exception& error) {
        failures[r] = error.what();
      }
    });
  }
  threads.clear();
  return failures;
}

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

TEST(TrainRanks, CheckpointsAndLossesAreThoseOfOneRank) {
  const model::Model model = branching_model(0.2, /*tied=*/true);
  const DataSplit data = feature_data();
  const TestFolder alone;
  const TrainResult expected = train(model, data, options_of(model, alone.path()));
  for (const std::vector<int>& ranks :
       {std::vector<int>{0, 1, 2}, std::vector<int>{0, 0, 1}, std::vector<int>{1, 2, 0}}) {
    const TestFolder together;
    std::vector<TrainResult> results(3);
    const auto failures = on_ranks(ranks, [&](runtime::World& world, size_t rank) {
      TrainOptions options = options_of(model, together.path());
      options.world = &world;
      results[rank] = train(model, data, options);
    });
    ASSERT_THAT(failures, Each(""));
    for (size_t r = 0; r < failures.size(); ++r) {
      EXPECT_EQ(results[r].losses, expected.losses);
      EXPECT_EQ(results[r].grad_norms, expected.grad_norms);
      EXPECT_EQ(results[r].test_accuracy, expected.test_accuracy);
      EXPECT_GE(results[r].idle_share, 0.0);
      EXPECT_LT(results[r].idle_share, 1.0);
    }
    const auto found = files_in(together.path());
    EXPECT_GT(found.size(), 8u);
    EXPECT_TRUE(found == files_in(alone.path()));
  }
}

TEST(TrainRanks, GoOnWithAnotherNumberOfRanks) {
  const model::Model model = branching_model(0.2, /*tied=*/true);
  const DataSplit data = feature_data();
  const TestFolder alone;
  const TrainResult whole = train(model, data, options_of(model, alone.path()));
  const TestFolder folder;
  TrainOptions first = options_of(model, folder.path());
  first.epochs = 1;
  ASSERT_THAT(on_ranks({0, 1, 1},
                       [&](runtime::World& world, size_t) {
                         TrainOptions options = first;
                         options.world = &world;
                         train(model, data, options);
                       }),
              Each(""));
  std::vector<TrainResult> results(3);
  ASSERT_THAT(on_ranks({0, 1, 2},
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

TEST(TrainRanks, AStopOnAnyRankEndsAllAfterTheSameStep) {
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
  const auto failures = on_ranks({0, 1, 2}, [&](runtime::World& world, size_t rank) {
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

TEST(TrainRanks, ALossThatIsNoNumberEndsAll) {
  const model::Model model = branching_model();
  const auto failures = on_ranks({0, 1, 2}, [&](runtime::World& world, size_t) {
    TrainOptions options = options_of(model, {});
    options.max_grad_norm = 0;
    options.learning_rate.base = 1e30;
    options.world = &world;
    train(model, feature_data(), options);
  });
  EXPECT_THAT(failures, Each(HasSubstr("the loss is no longer finite")));
}

TEST(TrainRanks, WhatFailsOnOneRankFailsOnAll) {
  const auto failures = on_ranks({0, 1, 2}, [&](runtime::World& world, size_t rank) {
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

TEST(TrainRanks, AFolderThatCannotBeMadeFailsOnAll) {
  const model::Model model = branching_model();
  const TestFolder folder;
  write_test_file(folder / "file", "");
  const auto failures = on_ranks({0, 1, 2}, [&](runtime::World& world, size_t) {
    TrainOptions options = options_of(model, folder / "file/checkpoints");
    options.world = &world;
    train(model, feature_data(), options);
  });
  EXPECT_THAT(failures, Each(HasSubstr("checkpoints")));
}

}  // namespace
}  // namespace penstock::train
