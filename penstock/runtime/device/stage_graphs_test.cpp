// Whole runs whose F and B are graphs, on emulated GPUs: the bits are those of the CPU.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <utility>
#include <vector>

#include "penstock/model/device/testing_replays.h"
#include "penstock/runtime/test_support.h"
#include "penstock/runtime/testing_team_model.h"

namespace penstock::runtime::testing {
namespace {

using model::kFirst;
using model::kSecond;
using plan::Strategy;

constexpr int64_t kSteps = 8;
constexpr int64_t kGraphSamples = 12 * kSteps;

/// The run by graphs against the same run without, on the CPU; how many were launched.
int64_t expect_same(std::vector<at::Device> device_of_worker, Case setup, int first_refused,
                    const model::Model& model) {
  const Trained expected = train(model, setup);
  model::ReplayingDevices devices(2, first_refused);
  setup.device_of_worker = std::move(device_of_worker);
  setup.devices = &devices;
  setup.device_graphs = true;
  const Trained trained = train(model, setup);
  expect_same_bits(expected, trained);
  for (size_t l = 0; l < expected.layers.size(); ++l) {
    for (size_t b = 0; b < expected.layers[l].buffers.size(); ++b)
      EXPECT_TRUE(trained.layers[l].buffers[b].equal(expected.layers[l].buffers[b])) << l;
  }
  return devices.launches();
}

int64_t launches(std::vector<at::Device> device_of_worker, const Case& setup,
                 const model::Model& model = skip_model()) {
  return expect_same(std::move(device_of_worker), setup, 1'000'000, model);
}

TEST(StageGraphs, OneWorkerMakesAllButTheFirstPassesByThem) {
  EXPECT_EQ(launches({kFirst}, {.samples = kGraphSamples}), 2 * (kSteps - 2));
  EXPECT_EQ(launches({kFirst}, {.parts = 3, .samples = kGraphSamples}), 2 * (3 * kSteps - 2));
}

TEST(StageGraphs, MicroBatchesInFlightHaveOneEach) {
  for (const Strategy kind : {Strategy::GPipe, Strategy::OneFOneBFlush}) {
    EXPECT_EQ(launches({kFirst, kSecond},
                       {.kind = kind, .replicas = {1, 1}, .parts = 4, .samples = kGraphSamples}),
              2 * 2 * (4 * kSteps - 2));
  }
}

TEST(StageGraphs, SeveralStagesOfAWorkerHandOver) {
  EXPECT_GT(launches({kFirst, kFirst}, {.kind = Strategy::Interleaved,
                                        .replicas = {1, 1, 1, 1},
                                        .parts = 4,
                                        .samples = kGraphSamples,
                                        .chunks = 2}),
            0);
}

TEST(StageGraphs, TheCpuTakesPartWithoutThem) {
  EXPECT_EQ(launches({at::kCPU, kFirst}, {.kind = Strategy::OneFOneBFlush,
                                          .replicas = {1, 1},
                                          .parts = 4,
                                          .samples = kGraphSamples}),
            2 * (4 * kSteps - 2));
}

TEST(StageGraphs, AStageWhoseTeamMeetsInsideOfItHasNone) {
  const TeamModel net = spread(two_stages(), 2);
  model::ReplayingDevices devices(4, 1'000'000);
  const Case setup{
      .kind = Strategy::OneFOneBFlush,
      .replicas = {1, 1},
      .parts = 4,
      .samples = kGraphSamples,
      .stage_of_layer = net.stage_of_layer,
      .device_of_worker = {kFirst, kSecond, at::Device(at::kCUDA, 2), at::Device(at::kCUDA, 3)},
      .devices = &devices,
      .device_graphs = true,
      .teams = {2, 2}};
  EXPECT_THAT(train(net.model, setup).graph_obstacles,
              ::testing::ElementsAre("stage 0: a team's members meet inside of it",
                                     "stage 1: a team's members meet inside of it"));
  EXPECT_EQ(devices.launches(), 0);
}

TEST(StageGraphs, ReplicasAddTheirGradients) {
  EXPECT_GT(
      launches(
          {kFirst, kSecond},
          {.kind = Strategy::DataParallel, .replicas = {2}, .parts = 2, .samples = kGraphSamples}),
      0);
}

TEST(StageGraphs, GradientsAreClippedAndAdamSteps) {
  EXPECT_GT(launches({kFirst, kSecond}, {.kind = Strategy::OneFOneBFlush,
                                         .replicas = {1, 1},
                                         .parts = 2,
                                         .samples = kGraphSamples,
                                         .optimizer = gentle_adam(),
                                         .learning_rate = 0.01,
                                         .norm = true,
                                         .max_grad_norm = 0.05}),
            0);
}

TEST(StageGraphs, SixteenBitsHaveVersionsThatStayWhereTheyAre) {
  EXPECT_EQ(launches({kFirst}, {.samples = kGraphSamples, .precision = Precision::BFloat16}),
            2 * (kSteps - 2));
}

TEST(StageGraphs, BuffersAreThoseOfTheLastPass) {
  const Case setup{.parts = 2, .samples = kGraphSamples, .sample = {2, 2, 2}};
  EXPECT_EQ(launches({kFirst}, setup, model_with_norms()), 2 * (2 * kSteps - 2));
  Case piped = setup;
  piped.kind = Strategy::GPipe;
  piped.replicas = {1, 1};
  EXPECT_EQ(launches({kFirst, kSecond}, piped, model_with_norms()), 2 * 2 * (2 * kSteps - 2));
}

TEST(StageGraphs, AMicroBatchOfAnotherSizeGoesWithout) {
  // The last mini-batch has 4 samples.
  EXPECT_EQ(
      launches({kFirst}, {.samples = kGraphSamples + 4, .sample = {2, 2, 2}}, model_with_norms()),
      2 * (kSteps - 2));
}

TEST(StageGraphs, WhatCannotBeRecordedIsDoneWithout) {
  const Case setup{.parts = 4, .samples = kGraphSamples, .sample = {2, 2, 2}};
  // F of the only graph, its B, F of the second one.
  for (const int refused : {0, 1, 2}) {
    Case piped = setup;
    piped.kind = Strategy::GPipe;
    piped.replicas = {1, 1};
    expect_same({kFirst, kSecond}, piped, refused, model_with_norms());
    expect_same({kFirst}, setup, refused, model_with_norms());
  }
}

TEST(StageGraphs, PoliciesWithOneVersionHaveThemToo) {
  for (const auto policy : {schedule::WeightPolicy::Latest, schedule::WeightPolicy::Current}) {
    for (const int refused : {0, 1, 2, 1'000'000}) {
      // Where B cannot be recorded F is made again, under latest on newer weights.
      if (policy == schedule::WeightPolicy::Latest && (refused == 1 || refused == 2)) continue;
      SCOPED_TRACE(fmt::format("{}, recording {} is refused", to_string(policy), refused));
      const Case setup{.kind = Strategy::Online,
                       .replicas = {1, 1, 1},
                       .policy = policy,
                       .samples = kGraphSamples,
                       .sample = {2, 2, 2}};
      const int64_t launched =
          expect_same({kFirst, kSecond, kFirst}, setup, refused, model_with_norms());
      if (refused > 2) EXPECT_GT(launched, 3 * (kSteps - 2));
    }
  }
}

TEST(StageGraphs, UnderCurrentAnyRecordingMayFail) {
  for (const std::vector<int>& replicas : {std::vector{1, 1}, std::vector{1, 1, 1}}) {
    std::vector<at::Device> devices = {kFirst, kSecond, kFirst};
    devices.resize(replicas.size(), kFirst);
    for (int refused = 0; refused < 8; ++refused) {
      SCOPED_TRACE(fmt::format("{} stages, recording {} is refused", replicas.size(), refused));
      expect_same(devices,
                  {.kind = Strategy::Online,
                   .replicas = replicas,
                   .policy = schedule::WeightPolicy::Current,
                   .samples = kGraphSamples,
                   .sample = {2, 2, 2}},
                  refused, model_with_norms());
    }
  }
}

TEST(StageGraphs, RandomNumbersSplitPassesAndOldVersionsGoWithout) {
  EXPECT_EQ(launches({kFirst}, {.samples = kGraphSamples}, skip_model(0.1)), 0);
  EXPECT_EQ(
      launches({kFirst, kSecond},
               {.kind = Strategy::ZbH1, .replicas = {1, 1}, .parts = 4, .samples = kGraphSamples}),
      0);
  EXPECT_EQ(launches({kFirst, kSecond}, {.kind = Strategy::OneFOneB,
                                         .replicas = {1, 1},
                                         .policy = schedule::WeightPolicy::Stash,
                                         .samples = kGraphSamples}),
            0);
  EXPECT_EQ(launches({kFirst}, {.samples = kGraphSamples, .recompute = {true}}), 0);
}

}  // namespace
}  // namespace penstock::runtime::testing
