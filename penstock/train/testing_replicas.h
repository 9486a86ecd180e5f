// What the tests of sums over replicas share: runs on threads and on ranks, held against the serial
// replay and against runs that go on from a checkpoint.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "penstock/runtime/fabric/testing_ranks.h"
#include "penstock/train/checkpoint/test_folder.h"
#include "penstock/train/serial_replay.h"
#include "penstock/train/test_training.h"

namespace penstock::train {

/// Two epochs of 20 samples a step, without evaluation; the weights are kept.
inline TrainOptions replica_options(const plan::Plan& plan) {
  TrainOptions options;
  options.plan = plan;
  options.mini_batch_size = 20;
  options.epochs = 2;
  options.optimizer.momentum = 0.9;
  options.learning_rate.base = 0.05;
  options.evaluate = false;
  options.keep_weights = true;
  options.deadline = std::chrono::seconds(60);
  return options;
}

/// Each worker its own rank, or, without a rig, all on threads.
inline TrainResult trained_on(const model::Model& model, const DataSplit& data,
                              const TrainOptions& options, const runtime::testing::RankRig* rig) {
  if (rig == nullptr) return train(model, data, options);
  std::vector<int> ranks(static_cast<size_t>(options.plan.num_workers()));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::vector<TrainResult> results(ranks.size());
  const auto failures =
      runtime::testing::on_ranks(*rig, ranks, [&](runtime::World& world, size_t rank) {
        TrainOptions own = options;
        own.world = &world;
        results[rank] = train(model, data, own);
      });
  EXPECT_THAT(failures, ::testing::Each(""));
  return std::move(results[0]);
}

/// The largest, of all weights.
template <class Layers>
double layers_difference(const Layers& a, const Layers& b) {
  double largest = 0;
  EXPECT_EQ(a.size(), b.size());
  for (size_t l = 0; l < a.size(); ++l) {
    for (size_t w = 0; w < a[l].size(); ++w)
      largest = std::max(largest, (a[l][w] - b[l][w]).abs().max().template item<double>());
  }
  return largest;
}

/// On threads and on every rig of ranks: losses and weights are those of one thread.
inline void expect_as_replayed(const model::Model& model, const DataSplit& data,
                               const TrainOptions& options) {
  const Replay replay = replay_serially(model, data, options);
  const auto compare = [&](const runtime::testing::RankRig* rig) {
    SCOPED_TRACE(rig == nullptr ? "threads" : rig->name);
    const TrainResult result = trained_on(model, data, options, rig);
    ASSERT_EQ(result.losses.size(), replay.losses.size());
    for (size_t t = 0; t < replay.losses.size(); ++t)
      EXPECT_NEAR(result.losses[t], replay.losses[t], 1e-4) << t;
    EXPECT_LT(layers_difference(result.weights, replay.weights), 2e-4);
  };
  compare(nullptr);
  for (const auto& rig : runtime::testing::rank_rigs()) compare(&rig);
}

/// Stopped after so many steps, and on from the checkpoint: the bits of a run that was not stopped.
inline void expect_going_on_after(int64_t stop, const model::Model& model, const DataSplit& data,
                                  TrainOptions options) {
  const std::vector<runtime::testing::RankRig> rigs = runtime::testing::rank_rigs();
  for (const auto* rig : {static_cast<const runtime::testing::RankRig*>(nullptr), &rigs[1]}) {
    SCOPED_TRACE(fmt::format("stopped after {} steps, {}", stop, rig ? rig->name : "threads"));
    options.checkpoint.clear();
    options.resume = false;
    const TrainResult whole = trained_on(model, data, options, rig);
    const TestFolder folder;
    options.checkpoint = folder.path();
    options.resume = true;
    TrainOptions first = options;
    first.max_steps = stop;
    trained_on(model, data, first, rig);
    const TrainResult rest = trained_on(model, data, options, rig);
    const std::vector<double> tail(whole.losses.begin() + stop, whole.losses.end());
    EXPECT_EQ(rest.losses, tail);
    EXPECT_EQ(rest.test_loss, whole.test_loss);
    EXPECT_EQ(layers_difference(rest.weights, whole.weights), 0);
  }
}

}  // namespace penstock::train
