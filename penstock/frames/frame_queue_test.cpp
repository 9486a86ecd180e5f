#include "penstock/frames/frame_queue.h"

#include <gmock/gmock.h>

#include <set>

#include "penstock/frames/paced_source.h"
#include "penstock/frames/sources/generated_source.h"
#include "penstock/frames/testing_frames.h"

namespace penstock::frames {
namespace {

using testing::HasSubstr;
using Script = ScriptedSource::Script;

std::unique_ptr<FrameSource> scripted(Script script) {
  return std::make_unique<ScriptedSource>(std::move(script));
}

/// Waits until the source has ended.
void await_end(const FrameQueue& queue) {
  const Deadline deadline = soon();
  while (!queue.counters().has_ended && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_TRUE(queue.counters().has_ended);
}

std::vector<int64_t> numbers_left(FrameQueue& queue) {
  std::vector<int64_t> numbers;
  Frame frame;
  while (queue.take(frame, soon()) == Next::Ready) {
    numbers.push_back(frame.number);
    EXPECT_EQ(frame.pixels, std::vector<uint8_t>{static_cast<uint8_t>(frame.number)});
  }
  return numbers;
}

TEST(FrameQueue, AFastTakerGetsEveryFrame) {
  FrameQueue queue(scripted({.frames = 30, .pause = std::chrono::milliseconds(2)}),
                   {.capacity = 30});
  EXPECT_EQ(numbers_left(queue).size(), 30u);
  const QueueCounters counters = queue.counters();
  EXPECT_EQ(counters.frames_in, 30);
  EXPECT_EQ(counters.taken, 30);
  EXPECT_EQ(counters.dropped, 0);
  EXPECT_EQ(counters.end_reason, "the source ended");
}

TEST(FrameQueue, TheOldestFramesAreDropped) {
  FrameQueue queue(scripted({.frames = 100}), {.capacity = 3});
  await_end(queue);
  EXPECT_EQ(queue.counters().dropped, 97);
  EXPECT_EQ(numbers_left(queue), (std::vector<int64_t>{97, 98, 99}));
  EXPECT_EQ(queue.counters().frames_in, 100);
  EXPECT_EQ(queue.counters().taken, 3);
}

TEST(FrameQueue, ASlowTakerSeesRecentFramesInOrder) {
  FrameQueue queue(scripted({.frames = 200, .pause = std::chrono::microseconds(200)}));
  Frame frame;
  int64_t last = -1;
  int64_t taken = 0;
  while (queue.take(frame, soon()) == Next::Ready) {
    EXPECT_GT(frame.number, last);
    last = frame.number;
    ++taken;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_EQ(last, 199);
  const QueueCounters counters = queue.counters();
  EXPECT_EQ(counters.frames_in, 200);
  EXPECT_EQ(counters.taken, taken);
  EXPECT_EQ(counters.dropped, 200 - taken);
  EXPECT_GT(counters.dropped, 0);
}

TEST(FrameQueue, AQueueThatWaitsDropsNothing) {
  FrameQueue queue(scripted({.frames = 50}), {.capacity = 2, .waits_when_full = true});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(queue.counters().frames_in, 2);  // it has not read further
  const std::vector<int64_t> numbers = numbers_left(queue);
  ASSERT_EQ(numbers.size(), 50u);
  for (size_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(numbers[i], static_cast<int64_t>(i));
  EXPECT_EQ(queue.counters().dropped, 0);
}

TEST(FrameQueue, AnErrorComesAfterTheFramesBeforeIt) {
  FrameQueue queue(scripted({.frames = 2, .error = "the lens is broken"}));
  await_end(queue);
  Frame frame;
  EXPECT_EQ(queue.take(frame, soon()), Next::Ready);
  EXPECT_EQ(queue.take(frame, soon()), Next::Ready);
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(message_of<RuntimeError>([&] { queue.take(frame, soon()); }), "the lens is broken");
  }
  EXPECT_EQ(queue.counters().end_reason, "the lens is broken; a remark");
}

TEST(FrameQueue, AStallIsAnAnswerAndIsMeasured) {
  FrameQueue queue(scripted({.frames = 1, .stalls = true}));
  Frame frame;
  EXPECT_EQ(queue.take(frame, soon()), Next::Ready);
  EXPECT_EQ(queue.take(frame, in_ms(150)), Next::Stalled);
  EXPECT_GE(queue.counters().longest_stall_ns, 50'000'000);
  EXPECT_FALSE(queue.counters().has_ended);
}

TEST(FrameQueue, StopsQuicklyWhileTheSourceStalls) {
  FrameQueue queue(scripted({.stalls = true}));
  std::thread stopper([&queue] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    queue.stop();
  });
  Frame frame;
  EXPECT_EQ(queue.take(frame, soon()), Next::Ended);
  stopper.join();
  queue.stop();
  EXPECT_EQ(queue.counters().end_reason, "stopped");
}

TEST(FrameQueue, StopsWhileItWaitsForRoomAndCountsWhatWaited) {
  FrameQueue queue(scripted({.frames = 9}), {.capacity = 2, .waits_when_full = true});
  Frame frame;
  ASSERT_EQ(queue.take(frame, soon()), Next::Ready);
  queue.stop();
  EXPECT_EQ(queue.take(frame, soon()), Next::Ended);
  const QueueCounters counters = queue.counters();
  EXPECT_EQ(counters.taken, 1);
  EXPECT_EQ(counters.frames_in, counters.taken + counters.dropped);
}

TEST(FrameQueue, BuffersGoRound) {
  const GeneratedOptions options{.size = {32, 24, kRgb}, .frames = 60};
  FrameQueue queue(std::make_unique<GeneratedSource>(options),
                   {.capacity = 2, .waits_when_full = true});
  std::set<const uint8_t*> pixels;
  std::set<const uint8_t*> labels;
  Frame frame;
  while (queue.take(frame, soon()) == Next::Ready) {
    pixels.insert(frame.pixels.data());
    labels.insert(frame.pixel_labels.data());
  }
  // Three of the queue and the one that the taker brought.
  EXPECT_LE(pixels.size(), 4u);
  EXPECT_LE(labels.size(), 4u);
}

TEST(FrameQueue, AQueueOfPacedFramesHasTheLatencyOfItsCapacity) {
  FrameQueue queue(std::make_unique<PacedSource>(scripted({.frames = 60}), 500));
  Frame frame;
  std::this_thread::sleep_for(std::chrono::milliseconds(40));
  ASSERT_EQ(queue.take(frame, soon()), Next::Ready);
  EXPECT_GE(frame.number, 1);  // at 2 ms per frame about the 19th
  EXPECT_EQ(queue.frames_per_second(), 500);
  EXPECT_EQ(queue.description(), "scripted, played at 500 frames/s");
}

TEST(FrameQueue, FramesThatTheSourceLeavesOutCountAsDropped) {
  auto slow = std::make_unique<ScriptedSource>(
      ScriptedSource::Script{.frames = 300, .pause = std::chrono::milliseconds(1), .skips = true});
  FrameQueue queue(std::make_unique<PacedSource>(std::move(slow), 20'000, LateFrames::LeaveOut));
  Frame frame;
  while (queue.take(frame, soon()) == Next::Ready) {
  }
  const QueueCounters counters = queue.counters();
  EXPECT_EQ(counters.frames_in, 300);
  EXPECT_EQ(counters.taken + counters.dropped, 300);
  EXPECT_GT(counters.source.skipped, 0);
  EXPECT_LE(counters.source.skipped, counters.dropped);
  EXPECT_THAT(counters.remarks, HasSubstr("the source did not keep 20000 frames/s"));
  EXPECT_EQ(counters.end_reason, "the source ended; " + counters.remarks);
}

TEST(FrameQueue, KnowsWhatHasComeOfTheFrameThatItWaitsFor) {
  FrameQueue queue(scripted({.frames = 1, .stalls = true, .half_frame = "half of it"}));
  Frame frame;
  ASSERT_EQ(queue.take(frame, soon()), Next::Ready);
  ASSERT_EQ(queue.take(frame, in_ms(200)), Next::Stalled);
  EXPECT_EQ(queue.counters().half_frame, "half of it");
}

TEST(FrameQueue, RefusesCapacities) {
  for (const int capacity : {0, -1, 5000}) {
    EXPECT_THAT(message_of<ConfigError>([&] { FrameQueue(scripted({}), {.capacity = capacity}); }),
                HasSubstr("expected a queue of 1 to 4096 frames"));
  }
}

}  // namespace
}  // namespace penstock::frames
