#include "penstock/stream/stream_meter.h"

#include <gtest/gtest.h>

namespace penstock::stream {
namespace {

using schedule::Op;

schedule::TimelineEvent event(Op op, int64_t start_ns, int64_t end_ns, int64_t waiting_ns = 0) {
  return {.action = {.op = op, .stage = StageId{0}},
          .start_ns = start_ns,
          .end_ns = end_ns,
          .waiting_ns = waiting_ns};
}

TEST(StreamMeter, AddsUpOutputsOfTheWholeAndOfAPart) {
  StreamMeter meter(5'000'000);
  meter.begin(1);
  meter.on_output(2'000'000, {.frames = 1, .sum = 1.0, .hits = {.hits = 3, .labels = 4}});
  meter.on_output(9'000'000, {.frames = 1, .sum = 3.0});
  const StreamNumbers part = meter.take_part();
  EXPECT_EQ(part.processed, 2);
  EXPECT_EQ(part.deadline_misses, 1);
  EXPECT_DOUBLE_EQ(part.losses.mean(), 2.0);
  EXPECT_EQ(part.losses.hits.hits, 3);
  EXPECT_EQ(part.losses.hits.labels, 4);
  EXPECT_EQ(part.latency_max_ns, 9'000'000);
  meter.on_output(1'000'000, {.frames = 1, .sum = 8.0});
  EXPECT_EQ(meter.take_part().processed, 1);
  const StreamNumbers whole = meter.whole();
  EXPECT_EQ(whole.processed, 3);
  EXPECT_DOUBLE_EQ(whole.losses.mean(), 4.0);
  EXPECT_GT(whole.fps, 0);
}

TEST(StreamMeter, FramesWithoutALossAreNotPartOfTheMean) {
  StreamMeter meter(0);
  meter.begin(1);
  meter.on_output(1, {.frames = 1, .sum = 1.5});
  meter.on_output(1, {});
  meter.on_output(1, {.rebuilt = 1, .rebuilt_sum = 0.25});
  const StreamNumbers whole = meter.whole();
  EXPECT_EQ(whole.processed, 3);
  EXPECT_DOUBLE_EQ(whole.losses.mean(), 1.5);
  EXPECT_DOUBLE_EQ(whole.losses.rebuilt_mean(), 0.25);
}

TEST(StreamMeter, NoPercentileIsLongerThanTheLongest) {
  StreamMeter meter(0);
  meter.begin(1);
  meter.on_output(1'234'567, {});
  EXPECT_EQ(meter.whole().latency_p99_ns, 1'234'567);
  EXPECT_EQ(meter.whole().latency_max_ns, 1'234'567);
}

TEST(StreamMeter, TimesOfAStageAreMeansPerFrameWithoutWaiting) {
  StreamMeter meter(0);
  meter.begin(2);
  for (int i = 0; i < 4; ++i) {
    meter.on_action(WorkerId{1}, event(Op::RecvForward, 0, 1000, 900));
    meter.on_action(WorkerId{1}, event(Op::Forward, 0, 300));
    meter.on_action(WorkerId{1}, event(Op::Backward, 0, 500));
    meter.on_action(WorkerId{1}, event(Op::Step, 0, 50));
  }
  const std::vector<StageTimes> stages = meter.take_stages();
  ASSERT_EQ(stages.size(), 2U);
  EXPECT_EQ(stages[0].frames, 0);
  EXPECT_EQ(stages[1].frames, 4);
  EXPECT_DOUBLE_EQ(stages[1].forward_ns, 300);
  EXPECT_DOUBLE_EQ(stages[1].backward_ns, 500);
  EXPECT_DOUBLE_EQ(stages[1].step_ns, 50);
  EXPECT_DOUBLE_EQ(stages[1].hand_over_ns, 100);
  EXPECT_DOUBLE_EQ(stages[1].tick_ns(), 950);
  EXPECT_EQ(meter.take_stages()[1].frames, 0);
}

TEST(StreamMeter, KeepsTheNewestActionsOnly) {
  StreamMeter meter(0);
  meter.begin(1);
  for (int i = 0; i < 5000; ++i) meter.on_action(WorkerId{0}, event(Op::Forward, i, i + 1));
  const auto actions = meter.newest_actions();
  ASSERT_EQ(actions.size(), 1U);
  EXPECT_LE(actions[0].size(), 1000U);
  EXPECT_EQ(actions[0].back().start_ns, 4999);
}

}  // namespace
}  // namespace penstock::stream
