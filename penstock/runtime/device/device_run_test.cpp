// Whole runs on emulated GPUs: the bits are those of the CPU, no tensor is combined with one
// elsewhere, and no stream reads what another one may not have written yet.
#include <gmock/gmock.h>

#include <utility>
#include <vector>

#include "penstock/model/device/testing_other_device.h"
#include "penstock/runtime/device/testing_stream_checker.h"
#include "penstock/runtime/test_support.h"
#include "penstock/runtime/testing_team_model.h"
#include "penstock/util/error.h"

namespace penstock::runtime::testing {
namespace {

using model::kFirst;
using model::kSecond;
using plan::Strategy;

const at::Device kCpu = at::kCPU;

/// libtorch takes other ways to the same numbers on devices that it does not know.
constexpr double kRounding = 1e-5;

/// The run on those devices against the same run on the CPU.
void expect_same_on(std::vector<at::Device> device_of_worker, Case setup,
                    double rounding = kRounding) {
  const Trained expected = train(skip_model(0.1), setup);
  setup.device_of_worker = std::move(device_of_worker);
  model::OtherDevices others(2);
  setup.devices = &others;
  const Trained elsewhere = train(skip_model(0.1), setup);
  EXPECT_LT(loss_difference(expected.losses, elsewhere.losses), rounding);
  EXPECT_LT(weight_difference(expected.layers, elsewhere.layers), rounding);
  CheckedDevices devices(2);
  setup.devices = &devices;
  const Trained trained = train(skip_model(0.1), setup);
  expect_same_bits(expected, trained);
  EXPECT_THAT(devices.violations(), ::testing::IsEmpty());
  EXPECT_GT(devices.operations(), 1000);
  EXPECT_EQ(trained.run.timeline.workers.front().size(),
            expected.run.timeline.workers.front().size());
}

constexpr int64_t kRunSamples = int64_t{12} * 6;

TEST(DeviceRun, OneGpuHasTheBitsOfTheCpu) { expect_same_on({kFirst}, {.samples = kRunSamples}); }

TEST(DeviceRun, StagesOnTwoGpusWaitForEachOther) {
  for (const Strategy kind : {Strategy::GPipe, Strategy::OneFOneBFlush, Strategy::ZbH1}) {
    expect_same_on({kFirst, kSecond},
                   {.kind = kind, .replicas = {1, 1}, .parts = 4, .samples = kRunSamples});
  }
  expect_same_on({kFirst, kSecond}, {.kind = Strategy::OneFOneB,
                                     .replicas = {1, 1},
                                     .policy = schedule::WeightPolicy::Stash,
                                     .parts = 1,
                                     .samples = kRunSamples});
}

TEST(DeviceRun, WorkersOfOneGpuHaveStreamsOfTheirOwn) {
  expect_same_on(
      {kFirst, kFirst, kFirst},
      {.kind = Strategy::OneFOneBFlush, .replicas = {1, 1, 1}, .parts = 4, .samples = kRunSamples});
}

TEST(DeviceRun, TheCpuTakesPart) {
  expect_same_on(
      {kCpu, kFirst, kCpu},
      {.kind = Strategy::OneFOneBFlush, .replicas = {1, 1, 1}, .parts = 4, .samples = kRunSamples});
}

TEST(DeviceRun, SeveralStagesOfAWorkerShareItsStream) {
  expect_same_on({kFirst, kSecond}, {.kind = Strategy::Interleaved,
                                     .replicas = {1, 1, 1, 1},
                                     .parts = 4,
                                     .samples = kRunSamples,
                                     .chunks = 2});
}

TEST(DeviceRun, CodedMessagesGoThroughTheHost) {
  // A number that is rounded the other way changes later ones.
  constexpr double kRoundedOtherwise = 0.03;
  for (const char* name : {"bfloat16", "int8"}) {
    Case setup{.kind = Strategy::ZbV, .replicas = {1, 1, 1, 1}, .parts = 4, .samples = 36};
    for (int32_t to = 1; to < 4; ++to) {
      for (int32_t from = 0; from < to; ++from)
        setup.boundaries.push_back({StageId{from}, StageId{to}, plan::parse_boundary(name)});
    }
    expect_same_on({kFirst, kCpu}, setup, kRoundedOtherwise);
    expect_same_on({kFirst, kSecond}, setup, kRoundedOtherwise);
  }
}

TEST(DeviceRun, ReplicasShareOutTheOptimisersState) {
  for (const bool norm : {false, true}) {
    const Case setup{.kind = Strategy::DataParallel,
                     .replicas = {2},
                     .parts = 2,
                     .samples = kRunSamples,
                     .optimizer = gentle_adam(),
                     .learning_rate = 0.01,
                     .norm = norm,
                     .max_grad_norm = norm ? 0.05 : 0.0,
                     .shard_optimizer = {true}};
    expect_same_on({kFirst, kSecond}, setup);
    expect_same_on({kFirst, kFirst}, setup);
  }
}

/// Two stages with two members each, whose sums go through the host's memory.
TEST(DeviceRun, MembersOfATeamExchange) {
  const TeamModel net = spread(two_stages(), 2);
  Case setup{.kind = Strategy::OneFOneBFlush,
             .replicas = {1, 1},
             .parts = 4,
             .samples = kRunSamples,
             .norm = true,
             .max_grad_norm = 0.05,
             .stage_of_layer = net.stage_of_layer,
             .teams = {2, 2}};
  const Trained expected = train(net.model, setup);
  CheckedDevices devices(4);
  setup.devices = &devices;
  const at::Device third(at::kCUDA, 2);
  const at::Device fourth(at::kCUDA, 3);
  for (const std::vector<at::Device>& placement :
       {std::vector{kFirst, kSecond, third, fourth}, {kFirst, kSecond, kCpu, kCpu}}) {
    setup.device_of_worker = placement;
    expect_same_bits(expected, train(net.model, setup));
  }
  EXPECT_THAT(devices.violations(), ::testing::IsEmpty());
  EXPECT_GT(devices.operations(), 1000);
}

TEST(DeviceRun, AMemberOfATeamHasItsGpuAlone) {
  const TeamModel net = spread(two_stages(), 2);
  CheckedDevices devices(2);
  const auto refusal = [&](const std::vector<at::Device>& placement) -> std::string {
    try {
      train(net.model, {.kind = Strategy::OneFOneBFlush,
                        .replicas = {1, 1},
                        .stage_of_layer = net.stage_of_layer,
                        .device_of_worker = placement,
                        .devices = &devices,
                        .teams = {2, 2}});
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal({kFirst, kSecond, kFirst, kCpu}),
              ::testing::HasSubstr("worker 0 is a member of a team and shares cuda:0 with worker "
                                   "2 of its process"));
  EXPECT_THAT(refusal({kFirst, kCpu, kCpu, kCpu}),
              ::testing::HasSubstr("the team of stage 0 are on cuda:0 and cpu"));
}

TEST(DeviceRun, ReplicasAddTheirGradients) {
  expect_same_on(
      {kFirst, kSecond},
      {.kind = Strategy::DataParallel, .replicas = {2}, .parts = 2, .samples = kRunSamples});
  expect_same_on(
      {kFirst, kSecond, kFirst},
      {.kind = Strategy::OneFOneBFlush, .replicas = {2, 1}, .parts = 4, .samples = kRunSamples});
}

TEST(DeviceRun, GradientsAreClipped) {
  expect_same_on({kFirst, kSecond}, {.kind = Strategy::OneFOneBFlush,
                                     .replicas = {1, 1},
                                     .parts = 2,
                                     .samples = kRunSamples,
                                     .norm = true,
                                     .max_grad_norm = 0.05});
}

TEST(DeviceRun, RecomputationRunsOnTheDevice) {
  expect_same_on({kFirst, kSecond}, {.kind = Strategy::OneFOneBFlush,
                                     .replicas = {1, 1},
                                     .parts = 4,
                                     .samples = kRunSamples,
                                     .recompute = {true, false}});
}

TEST(DeviceRun, ActivationsMoveToTheHostAndBack) {
  expect_same_on({kFirst, kSecond}, {.kind = Strategy::GPipe,
                                     .replicas = {1, 1},
                                     .parts = 6,
                                     .samples = kRunSamples,
                                     .offload = {true, true}});
  for (const Strategy kind : {Strategy::OneFOneBFlush, Strategy::ZbH2}) {
    expect_same_on({kFirst, kSecond, kFirst, kSecond}, {.kind = kind,
                                                        .replicas = {1, 1, 1, 1},
                                                        .parts = 6,
                                                        .samples = kRunSamples,
                                                        .offload = {true, true, true, true}});
  }
  // Two stages on one device exchange tensors by reference.
  expect_same_on({kFirst, kSecond, kFirst}, {.kind = Strategy::GPipe,
                                             .replicas = {1, 1, 1},
                                             .parts = 6,
                                             .samples = kRunSamples,
                                             .offload = {true, true, true}});
  expect_same_on({kFirst, kSecond, kFirst}, {.kind = Strategy::GPipe,
                                             .replicas = {2, 1},
                                             .parts = 6,
                                             .samples = kRunSamples,
                                             .offload = {true, true}});
  expect_same_on({kFirst, kSecond}, {.kind = Strategy::Interleaved,
                                     .replicas = {1, 1, 1, 1},
                                     .parts = 6,
                                     .samples = kRunSamples,
                                     .offload = {true, false, true, true},
                                     .chunks = 2});
  expect_same_on({kFirst, kSecond, kCpu, kSecond}, {.kind = Strategy::OneFOneB,
                                                    .replicas = {1, 1, 1, 1},
                                                    .policy = schedule::WeightPolicy::Stash,
                                                    .parts = 1,
                                                    .samples = kRunSamples,
                                                    .offload = {true, false, true, true}});
}

TEST(DeviceRun, AdamStepsOnTheDevice) {
  expect_same_on({kFirst, kSecond}, {.kind = Strategy::OneFOneBFlush,
                                     .replicas = {1, 1},
                                     .parts = 2,
                                     .samples = kRunSamples,
                                     .optimizer = gentle_adam(),
                                     .learning_rate = 0.01});
}

TEST(DeviceRun, SixteenBitsAreComputedOnTheDevice) {
  for (const Precision precision : {Precision::BFloat16, Precision::Float16}) {
    expect_same_on({kFirst, kSecond},
                   {.kind = Strategy::OneFOneBFlush,
                    .replicas = {1, 1},
                    .parts = 2,
                    .samples = kRunSamples,
                    .precision = precision,
                    .norm = scales_loss(precision)},
                   /*rounding=*/0.01);
  }
}

TEST(DeviceRun, StreamsThatDoNotWaitAreFound) {
  CheckedDevices devices(2, /*ignores_waits=*/true);
  train(skip_model(), {.kind = Strategy::OneFOneBFlush,
                       .replicas = {1, 1},
                       .parts = 4,
                       .samples = kRunSamples,
                       .device_of_worker = {kFirst, kSecond},
                       .devices = &devices});
  EXPECT_THAT(devices.violations(), ::testing::Not(::testing::IsEmpty()));
}

}  // namespace
}  // namespace penstock::runtime::testing
