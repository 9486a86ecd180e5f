// How a thread waits for what is expected within microseconds: awake at first. To fall asleep and
// to be woken takes 10 to 50 us, and longer in virtual machines. Where other threads want the core,
// it sleeps at once. Not thread-safe.
//
//   Awake awake;
//   while (!is_there() && awake.goes_on()) continue;
//   if (!is_there()) sleep_until_it_is();
#pragma once

#include <chrono>
#include <thread>

namespace penstock {

class Awake {
 public:
  using Clock = std::chrono::steady_clock;
  /// Longer than a message of 1 MiB takes to the other process and back (docs/lab/performance.md).
  static constexpr std::chrono::microseconds kLongest{200};
  /// To offer the core and to have it back takes less where nobody wants it.
  static constexpr std::chrono::microseconds kUnwanted{100};

  Awake() { begin_again(); }

  void begin_again() { now_ = start_ = Clock::now(); }
  /// Offers the core to other threads; false when it is time to sleep.
  bool goes_on() {
    const Clock::time_point offered = now_;
    std::this_thread::yield();
    now_ = Clock::now();
    return now_ - offered < kUnwanted && now_ - start_ < kLongest;
  }
  /// By how much the time to sleep is past.
  Clock::duration late() const { return Clock::now() - start_ - kLongest; }

 private:
  Clock::time_point start_;
  Clock::time_point now_;
};

}  // namespace penstock
