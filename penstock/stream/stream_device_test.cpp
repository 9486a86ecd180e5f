// Streams on emulated GPUs: the bits are those of the CPU, no tensor is combined with one
// elsewhere, and no stream reads what another one may not have written yet.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/model/device/testing_other_device.h"
#include "penstock/model/device/testing_replays.h"
#include "penstock/runtime/device/testing_stream_checker.h"
#include "penstock/stream/testing_stream.h"

namespace penstock::stream::testing {
namespace {

constexpr int64_t kFrames = 30;
/// libtorch takes other ways to the same numbers on devices that it does not know.
constexpr double kRounding = 1e-4;
const std::vector<at::Device> kTwo = {at::Device(at::kCUDA, 0), at::Device(at::kCUDA, 1)};

struct Trial {
  frames::Task task = frames::Task::Reconstruct;
  int stages = 1;
  std::string weights = "";
  int label_every = 1;
};

/// In turn.
std::function<std::vector<at::Device>(int)> dealing(std::vector<at::Device> devices) {
  if (devices.empty()) return {};
  return [devices = std::move(devices)](int stages) {
    std::vector<at::Device> result;
    for (int s = 0; s < stages; ++s)
      result.push_back(devices[static_cast<size_t>(s) % devices.size()]);
    return result;
  };
}

StreamSummary learn(const Trial& setup, std::vector<at::Device> devices = {},
                    model::Devices* installed = nullptr, int64_t frames = kFrames,
                    bool graphs = false) {
  const model::Model model = model_for(setup.task);
  const auto queue = generated(frames, setup.label_every);
  StreamOptions options{.task = setup.task,
                        .plan = plan_of(model, setup.stages, setup.weights),
                        .learning_rate = 0.05,
                        .device_of_stage = dealing(std::move(devices)),
                        .device_graphs = graphs,
                        .installed = installed};
  OnlineLoop loop(model, *queue, std::move(options));
  return loop.run();
}

void expect_same_losses(const Losses& a, const Losses& b, double rounding) {
  EXPECT_EQ(a.frames, b.frames);
  EXPECT_EQ(a.rebuilt, b.rebuilt);
  EXPECT_EQ(a.hits.labels, b.hits.labels);
  EXPECT_NEAR(a.sum, b.sum, rounding * a.sum);
  EXPECT_NEAR(a.rebuilt_sum, b.rebuilt_sum, rounding * a.rebuilt_sum);
  if (rounding == 0) EXPECT_EQ(a.hits.hits, b.hits.hits);
}

void expect_same_on(const std::vector<at::Device>& devices, const Trial& setup) {
  SCOPED_TRACE(std::string(to_string(setup.task)) + ", stages " + std::to_string(setup.stages) +
               ", " + setup.weights);
  const StreamSummary expected = learn(setup);
  model::OtherDevices others(2);
  const StreamSummary elsewhere = learn(setup, devices, &others);
  EXPECT_LT(difference(expected.state, elsewhere.state), kRounding);
  expect_same_losses(expected.numbers.losses, elsewhere.numbers.losses, kRounding);
  runtime::testing::CheckedDevices checked(2);
  const StreamSummary found = learn(setup, devices, &checked);
  EXPECT_EQ(difference(expected.state, found.state), 0);
  expect_same_losses(expected.numbers.losses, found.numbers.losses, 0);
  EXPECT_EQ(found.numbers.processed, expected.numbers.processed);
  EXPECT_EQ(found.state.steps, expected.state.steps);
  EXPECT_THAT(checked.violations(), ::testing::IsEmpty());
  EXPECT_GT(checked.operations(), 500);
}

TEST(StreamDevice, EveryTaskHasTheBitsOfTheCpu) {
  for (const frames::Task task : frames::kTasks) expect_same_on(kTwo, {.task = task, .stages = 2});
}

TEST(StreamDevice, FramesWithAndWithoutLabelsKeepTheirOrder) {
  for (const frames::Task task : {frames::Task::Pixels, frames::Task::Label})
    expect_same_on(kTwo, {.task = task, .stages = 2, .label_every = 3});
}

TEST(StreamDevice, EveryPolicyHasTheBitsOfTheCpu) {
  for (const std::string weights : {"current", "latest", "stash"})
    expect_same_on(kTwo, {.stages = 4, .weights = weights});
}

TEST(StreamDevice, StagesOfOneGpuAndTheCpuTakePart) {
  expect_same_on({kTwo[0]}, {.stages = 3});
  expect_same_on({kTwo[0]}, {.stages = 1});
  expect_same_on({at::kCPU, kTwo[1]}, {.stages = 2});
}

TEST(StreamDevice, GraphsHaveTheBitsOfTheCpu) {
  for (const std::string weights : {"current", "latest", "stash"}) {
    for (const int stages : {1, 3}) {
      SCOPED_TRACE(weights + ", stages " + std::to_string(stages));
      const Trial setup{.stages = stages, .weights = weights};
      const StreamSummary expected = learn(setup);
      model::ReplayingDevices devices(2);
      const StreamSummary found = learn(setup, kTwo, &devices, kFrames, /*graphs=*/true);
      EXPECT_EQ(difference(expected.state, found.state), 0);
      expect_same_losses(expected.numbers.losses, found.numbers.losses, 0);
      if (weights == "stash" && stages > 1) {
        EXPECT_EQ(devices.launches(), 0);
        ASSERT_EQ(found.graph_obstacles.size(), 3);
        EXPECT_EQ(found.graph_obstacles.front(), "stage 0: weights have several versions");
      } else {
        EXPECT_GT(devices.launches(), stages * (kFrames - 3));
        if (weights == "current") EXPECT_EQ(devices.recorded(), 2 * stages);
        EXPECT_THAT(found.graph_obstacles, ::testing::IsEmpty());
      }
    }
  }
}

TEST(StreamDevice, LatenciesAreThoseOfTheDevice) {
  runtime::testing::CheckedDevices devices(1);
  const StreamSummary summary = learn({.stages = 2}, {kTwo[0]}, &devices);
  EXPECT_EQ(summary.numbers.processed, kFrames);
  EXPECT_GT(summary.numbers.latency_p50_ns, 0);
  EXPECT_LT(summary.numbers.latency_max_ns, summary.numbers.elapsed_ns);
}

TEST(StreamDevice, SavesAreOfOneStep) {
  const Trial setup{.stages = 3, .weights = "stash"};
  const model::Model model = model_for(setup.task);
  model::OtherDevices devices(2);
  const auto [summary, saved] = run_and_save(model, 400,
                                             {.task = setup.task,
                                              .plan = plan_of(model, setup.stages, setup.weights),
                                              .learning_rate = 0.05,
                                              .device_of_stage = dealing(kTwo),
                                              .installed = &devices});
  EXPECT_EQ(summary.numbers.processed, 400);
  ASSERT_TRUE(saved.has_value());
  ASSERT_LT(saved->steps, 400);
  EXPECT_EQ(difference(learn(setup, kTwo, &devices, saved->steps).state, *saved), 0);
}

}  // namespace
}  // namespace penstock::stream::testing
