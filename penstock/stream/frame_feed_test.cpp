#include "penstock/stream/frame_feed.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>

#include "penstock/frames/testing_frames.h"
#include "penstock/stream/testing_stream.h"

namespace penstock::stream {
namespace {

using Next = runtime::BatchSource::Next;

Next wait_for_next(FrameFeed& feed, int64_t b) {
  Next next = Next::NotYet;
  while (next == Next::NotYet) next = feed.next(MicroBatchId{b});
  return next;
}

std::unique_ptr<frames::FrameQueue> scripted(frames::ScriptedSource::Script script) {
  return std::make_unique<frames::FrameQueue>(
      std::make_unique<frames::ScriptedSource>(std::move(script)),
      frames::QueueOptions{.waits_when_full = true});
}

TEST(FrameFeed, GivesOneFrameAfterAnotherUntilTheSourceEnds) {
  const auto queue = scripted({.frames = 3});
  FrameFeed feed(*queue, {.task = frames::Task::Reconstruct});
  for (int64_t b = 0; b < 3; ++b) {
    ASSERT_EQ(wait_for_next(feed, b), Next::Ready);
    EXPECT_EQ(feed.number(MicroBatchId{b}), b);
    EXPECT_FLOAT_EQ(feed.inputs(MicroBatchId{b})[0].item<float>(),
                    static_cast<float>(b) / 255 - 0.5F);
    EXPECT_TRUE(feed.targets(MicroBatchId{b}).equal(feed.inputs(MicroBatchId{b})[0]));
  }
  EXPECT_EQ(wait_for_next(feed, 3), Next::Ended);
  EXPECT_FALSE(feed.ended()->is_error);
  EXPECT_EQ(feed.given(), 3);
}

TEST(FrameFeed, PredictsEachFrameFromTheOneBefore) {
  const auto queue = scripted({.frames = 4});
  FrameFeed feed(*queue, {.task = frames::Task::Predict});
  for (int64_t b = 0; b < 3; ++b) {
    ASSERT_EQ(wait_for_next(feed, b), Next::Ready);
    EXPECT_FLOAT_EQ(feed.inputs(MicroBatchId{b})[0].item<float>(),
                    static_cast<float>(b) / 255 - 0.5F);
    EXPECT_FLOAT_EQ(feed.targets(MicroBatchId{b}).item<float>(),
                    static_cast<float>(b + 1) / 255 - 0.5F);
  }
  EXPECT_EQ(wait_for_next(feed, 3), Next::Ended);
}

TEST(FrameFeed, PixelsHaveTheirLabelsOrElseTheFrame) {
  const auto queue = testing::generated(3, /*label_every=*/2);
  FrameFeed feed(*queue, {.task = frames::Task::Pixels, .frames_under_way = 3});
  for (int64_t b = 0; b < 3; ++b) ASSERT_EQ(wait_for_next(feed, b), Next::Ready);
  EXPECT_EQ(feed.targets(MicroBatchId{0}).scalar_type(), at::kLong);
  EXPECT_EQ(feed.targets(MicroBatchId{0}).sizes(), at::IntArrayRef({1, 12, 16}));
  EXPECT_EQ(feed.targets(MicroBatchId{1}).sizes(), at::IntArrayRef({1, 3, 12, 16}));
  EXPECT_EQ(feed.targets(MicroBatchId{2}).scalar_type(), at::kLong);
}

TEST(FrameFeed, RefusesTasksWithLabelsWhereThereAreNone) {
  const auto queue = scripted({.frames = 1});
  EXPECT_THROW(FrameFeed(*queue, {.task = frames::Task::Pixels}), ConfigError);
}

TEST(FrameFeed, EndsWithTheErrorOfTheSourceAfterItsLastFrame) {
  const auto queue = scripted({.frames = 1, .error = "the cable is out"});
  FrameFeed feed(*queue, {});
  EXPECT_EQ(wait_for_next(feed, 0), Next::Ready);
  EXPECT_EQ(wait_for_next(feed, 1), Next::Ended);
  EXPECT_TRUE(feed.ended()->is_error);
  EXPECT_NE(feed.ended()->reason.find("the cable is out"), std::string::npos);
}

TEST(FrameFeed, EndsWhenNoFrameComesForTooLong) {
  const auto queue = scripted({.frames = 1, .stalls = true, .half_frame = "1 of 3 bytes"});
  FrameFeed feed(*queue, {.longest_stall = std::chrono::milliseconds(120)});
  EXPECT_EQ(wait_for_next(feed, 0), Next::Ready);
  EXPECT_EQ(wait_for_next(feed, 1), Next::Ended);
  EXPECT_TRUE(feed.ended()->is_error);
  EXPECT_THAT(feed.ended()->reason,
              ::testing::MatchesRegex("no frame came for 0.* s: 1 of 3 bytes"));
}

TEST(FrameFeed, EndsAfterAsManyFramesAsWereAskedFor) {
  const auto queue = testing::generated(100);
  FrameFeed feed(*queue, {.max_frames = 2});
  EXPECT_EQ(wait_for_next(feed, 0), Next::Ready);
  feed.restart(1);
  EXPECT_EQ(wait_for_next(feed, 0), Next::Ready);
  EXPECT_EQ(feed.given_in_run(), 1);
  EXPECT_EQ(wait_for_next(feed, 1), Next::Ended);
}

}  // namespace
}  // namespace penstock::stream
