#include "penstock/util/process/mutex.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

struct Flag {
  Mutex mutex;
  CondVar changed;
  bool set GUARDED_BY(mutex) = false;

  bool wait_awake(Clock::time_point deadline) {
    MutexLock lock(mutex);
    return changed.wait_awake_until(mutex, deadline,
                                    [&]() NO_THREAD_SAFETY_ANALYSIS { return set; });
  }
  void raise() {
    MutexLock lock(mutex);
    set = true;
    changed.notify_all();
  }
};

TEST(WaitAwake, ReturnsAtOnceWhatIsThere) {
  Flag flag;
  flag.raise();
  EXPECT_TRUE(flag.wait_awake(Clock::now()));
}

TEST(WaitAwake, EndsAtTheDeadlineAndNotBefore) {
  for (const auto length : {milliseconds(0), milliseconds(20)}) {
    Flag flag;
    const auto start = Clock::now();
    EXPECT_FALSE(flag.wait_awake(start + length));
    EXPECT_GE(Clock::now() - start, length);
  }
}

// Awake at first, asleep later: seen in both.
TEST(WaitAwake, SeesWhatComesLate) {
  for (const auto after : {std::chrono::microseconds(5), std::chrono::microseconds(20'000)}) {
    Flag flag;
    std::jthread other([&] {
      std::this_thread::sleep_for(after);
      flag.raise();
    });
    EXPECT_TRUE(flag.wait_awake(Clock::now() + std::chrono::seconds(60)));
  }
}

// A notification between the look and the sleep is not lost: the two wait for each other.
TEST(WaitAwake, TakesTurns) {
  constexpr int kRounds = 2000;
  Mutex mutex;
  CondVar changed;
  int turn = 0;
  const auto take_turns = [&](int first) {
    for (int round = 0; round < kRounds; ++round) {
      MutexLock lock(mutex);
      Clock::time_point deadline = Clock::now() + std::chrono::seconds(60);
      ASSERT_TRUE(changed.wait_awake_until(mutex, deadline, [&] { return turn % 2 == first; }));
      ++turn;
      changed.notify_all();
    }
  };
  std::jthread other([&] { take_turns(1); });
  take_turns(0);
  other.join();
  EXPECT_EQ(turn, 2 * kRounds);
}

}  // namespace
}  // namespace penstock
