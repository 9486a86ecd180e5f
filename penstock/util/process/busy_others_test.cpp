#include "penstock/util/process/busy_others.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

namespace penstock {
namespace {

/// Uses a core for so long.
void compute(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  volatile int number = 0;
  while (std::chrono::steady_clock::now() < end) number = number + 1;
}

TEST(BusyOthers, CountsAnotherProcess) {
  constexpr std::chrono::milliseconds kTime(600);
  const BusyOthers others;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    compute(kTime);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  // Most of one core; the machine may have other work for both.
  EXPECT_GE(others.cores(), 0.4);
}

TEST(BusyOthers, LeavesOutThisProcess) {
  const auto at = [](double all, double own, int ms) {
    return BusyOthers::Times{
        .all = all,
        .own = own,
        .at = std::chrono::steady_clock::time_point(std::chrono::milliseconds(ms))};
  };
  EXPECT_DOUBLE_EQ(BusyOthers::between(at(10, 5, 0), at(13, 7, 2000)), 0.5);
  EXPECT_DOUBLE_EQ(BusyOthers::between(at(10, 5, 0), at(12, 7, 2000)), 0);
  EXPECT_DOUBLE_EQ(BusyOthers::between(at(10, 5, 0), at(11, 7, 2000)), 0) << "ticks are coarse";
  EXPECT_DOUBLE_EQ(BusyOthers::between(at(10, 5, 0), at(10, 5, 0)), 0) << "no time has passed";
  const BusyOthers::Times begin = BusyOthers::now();
  compute(std::chrono::milliseconds(300));
  const BusyOthers::Times end = BusyOthers::now();
  EXPECT_GE(end.own - begin.own, 0.05);
  EXPECT_GE(end.all - begin.all, 0.05);
}

}  // namespace
}  // namespace penstock
