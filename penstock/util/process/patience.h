// A deadline that counts only the time in which the process runs. A process that is stopped
// (SIGSTOP, Ctrl-Z) cannot do what it waits for, so a wait is divided into short ones: one that
// took much longer than it should has been stopped, and the deadline moves by that time. Not
// thread-safe.
//
//   Patience patience(deadline, Clock::now());
//   while (!done && !patience.is_over()) {
//     sleep_until(patience.next_look());
//     patience.look(Clock::now());
//   }
#pragma once

#include <algorithm>
#include <chrono>

namespace penstock {

class Patience {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  /// Longest wait without looking at the clock.
  static constexpr std::chrono::milliseconds kSlice{1000};
  /// A wait that ends later than it should by more than this has been stopped; by less, the
  /// machine is busy.
  static constexpr std::chrono::milliseconds kTolerance{1000};

  Patience(Deadline deadline, Deadline now) : deadline_(deadline), now_(now) {}

  Deadline deadline() const { return deadline_; }
  bool is_over() const { return now_ >= deadline_; }
  /// Until when to wait; then call look().
  Deadline next_look() const { return std::min<Deadline>(deadline_, now_ + kSlice); }
  void look(Deadline now) {
    const auto late = now - next_look();
    if (late > kTolerance) deadline_ += late;
    now_ = now;
  }

 private:
  Deadline deadline_;
  Deadline now_;
};

}  // namespace penstock
