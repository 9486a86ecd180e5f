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

TEST(BusyOthers, CountsAnotherProcessAndNotThisOne) {
  constexpr std::chrono::milliseconds kTime(600);
  const BusyOthers with_another;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    compute(kTime);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  const double others = with_another.cores();
  const BusyOthers alone;
  compute(kTime);
  // Ticks are 10 ms, and the machine may have other work. Of the child, most of one core counts;
  // of this process nothing.
  EXPECT_GE(others, 0.4);
  EXPECT_LT(alone.cores(), others + 1) << "its own work is no one else's";
  EXPECT_GE(alone.cores(), 0);
}

}  // namespace
}  // namespace penstock
