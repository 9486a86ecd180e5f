#include "penstock/runtime/fabric/local/barrier.h"

#include <chrono>

namespace penstock::runtime {

WaitResult Barrier::wait(Wait& wait) {
  const auto start = std::chrono::steady_clock::now();
  MutexLock lock(mutex_);
  if (closed_) return WaitResult::Closed;
  const int64_t mine = generation_;
  if (++arrived_ == parties_) {
    arrived_ = 0;
    ++generation_;
    changed_.notify_all();
    return WaitResult::Ready;
  }
  const bool ready = changed_.wait_awake_until(
      mutex_, wait.deadline,
      [&]() NO_THREAD_SAFETY_ANALYSIS { return closed_ || generation_ != mine; });
  wait.waited_ns +=
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start)
          .count();
  if (generation_ != mine) return WaitResult::Ready;
  if (ready) return WaitResult::Closed;
  closed_ = true;
  changed_.notify_all();
  return WaitResult::TimedOut;
}

void Barrier::close() {
  MutexLock lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

}  // namespace penstock::runtime
