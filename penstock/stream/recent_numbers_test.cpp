#include "penstock/stream/recent_numbers.h"

#include <gtest/gtest.h>

namespace penstock::stream {
namespace {

StreamNumbers whole(double seconds, int64_t processed, double loss_sum) {
  return {.elapsed_ns = static_cast<int64_t>(seconds * 1e9),
          .processed = processed,
          .losses = {.frames = processed, .sum = loss_sum}};
}

TEST(RecentNumbers, AreThoseOfTheWholeWhileItIsShort) {
  RecentNumbers recent(std::chrono::seconds(5));
  EXPECT_DOUBLE_EQ(recent.add(whole(0.2, 10, 1)).fps, 50);
  EXPECT_DOUBLE_EQ(recent.add(whole(0.25, 11, 1)).fps, 44);
}

TEST(RecentNumbers, ForgetWhatIsOlderThanTheWindow) {
  RecentNumbers recent(std::chrono::seconds(1));
  recent.add(whole(1, 100, 100));
  recent.add(whole(2, 120, 110));
  const StreamNumbers numbers = recent.add(whole(3, 150, 125));
  EXPECT_EQ(numbers.processed, 30);
  EXPECT_DOUBLE_EQ(numbers.fps, 30);
  EXPECT_DOUBLE_EQ(numbers.losses.mean(), 0.5);
}

TEST(RecentNumbers, ALookRightAfterAnotherKeepsTheRate) {
  RecentNumbers recent(std::chrono::seconds(1));
  for (int look = 1; look <= 20; ++look) recent.add(whole(0.2 * look, 20 * look, 0));
  // nothing has come since, and 1 ms has passed
  EXPECT_NEAR(recent.add(whole(4.001, 400, 0)).fps, 100, 1);
}

}  // namespace
}  // namespace penstock::stream
