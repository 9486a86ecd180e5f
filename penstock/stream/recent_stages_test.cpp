#include "penstock/stream/recent_stages.h"

#include <gtest/gtest.h>

namespace penstock::stream {
namespace {

StageTimes times(double forward_ns, int64_t frames = 10) {
  return {.frames = frames, .forward_ns = forward_ns, .backward_ns = 2 * forward_ns, .busy = 0.5};
}

TEST(RecentStages, OneLookThatTookLongChangesLittle) {
  RecentStages recent;
  for (int i = 0; i < 6; ++i) recent.add({times(100 + i), times(7)});
  recent.add({times(2e9, 1), times(2e9, 1)});
  const std::vector<StageTimes> medians = recent.medians();
  ASSERT_EQ(medians.size(), 2U);
  EXPECT_DOUBLE_EQ(medians[0].forward_ns, 103);
  EXPECT_DOUBLE_EQ(medians[0].backward_ns, 206);
  EXPECT_DOUBLE_EQ(medians[0].busy, 0.5);
  EXPECT_DOUBLE_EQ(medians[1].forward_ns, 7);
  EXPECT_EQ(medians[0].frames, 61);
  EXPECT_EQ(recent.looks(), 7);
}

TEST(RecentStages, FollowsALastingChange) {
  RecentStages recent;
  for (int i = 0; i < 50; ++i) recent.add({times(100)});
  for (int i = 0; i < 5; ++i) recent.add({times(300)});
  EXPECT_DOUBLE_EQ(recent.medians()[0].forward_ns, 300);
}

TEST(RecentStages, KeepsMoreLooksWhereTheySawFewFrames) {
  RecentStages recent;
  for (int i = 0; i < 60; ++i) recent.add({times(100, 1)});
  EXPECT_EQ(recent.medians()[0].frames, 20);
  for (int i = 0; i < 60; ++i) recent.add({times(100, 0)});
  EXPECT_EQ(recent.looks(), 20);
}

TEST(RecentStages, BeginsAnewWithAnotherNumberOfStages) {
  RecentStages recent;
  EXPECT_TRUE(recent.medians().empty());
  recent.add({times(1)});
  recent.add({times(2), times(3)});
  EXPECT_DOUBLE_EQ(recent.medians()[0].forward_ns, 2);
  EXPECT_EQ(recent.looks(), 1);
  recent.clear();
  EXPECT_EQ(recent.looks(), 0);
}

}  // namespace
}  // namespace penstock::stream
