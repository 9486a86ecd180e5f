#include "penstock/util/process/patience.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

using namespace std::chrono_literals;

constexpr Patience::Deadline kStart{};

TEST(Patience, EndsAtTheDeadline) {
  Patience patience(kStart + 2500ms, kStart);
  EXPECT_EQ(patience.next_look(), kStart + 1000ms);
  patience.look(kStart + 1000ms);
  EXPECT_EQ(patience.next_look(), kStart + 2000ms);
  patience.look(kStart + 2000ms);
  EXPECT_EQ(patience.next_look(), kStart + 2500ms);
  EXPECT_FALSE(patience.is_over());
  patience.look(kStart + 2500ms);
  EXPECT_TRUE(patience.is_over());
}

TEST(Patience, IsOverAtOnceWhenTheDeadlineHasPassed) {
  EXPECT_TRUE(Patience(kStart, kStart + 1ms).is_over());
}

TEST(Patience, MovesTheDeadlineByTheTimeThatTheProcessWasStopped) {
  Patience patience(kStart + 3000ms, kStart);
  patience.look(kStart + 1000ms + 1h);
  EXPECT_FALSE(patience.is_over());
  patience.look(kStart + 2000ms + 1h);
  EXPECT_FALSE(patience.is_over());
  patience.look(kStart + 3000ms + 1h);
  EXPECT_TRUE(patience.is_over());
}

TEST(Patience, ABusyMachineDoesNotMoveTheDeadline) {
  Patience patience(kStart + 2000ms, kStart);
  patience.look(kStart + 1900ms);
  patience.look(kStart + 2900ms);
  EXPECT_TRUE(patience.is_over());
}

TEST(Patience, LooksInBetweenDoNotCount) {
  Patience patience(kStart + 3000ms, kStart);
  for (int i = 1; i <= 30; ++i) {
    EXPECT_FALSE(patience.is_over());
    patience.look(kStart + i * 100ms);
  }
  EXPECT_TRUE(patience.is_over());
}

}  // namespace
}  // namespace penstock
