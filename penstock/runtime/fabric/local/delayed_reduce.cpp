#include "penstock/runtime/fabric/local/delayed_reduce.h"

#include <optional>
#include <utility>

#include "penstock/runtime/fabric/stopwatch.h"

namespace penstock::runtime {

void DelayedReduce::start(int replica, Partials partials) {
  const bool last = !partials.empty() && partials.front().group == kLastUpdate;
  MutexLock lock(mutex_);
  sum_.give(replica, last || partials.empty() ? model::Tensors() : partials.front().sums, last);
  changed_.notify_all();
}

WaitResult DelayedReduce::finish(int replica, model::Tensors& sums, Wait& wait) {
  const Stopwatch stopwatch(wait);
  MutexLock lock(mutex_);
  std::optional<model::Tensors> taken;
  changed_.wait_until(mutex_, wait.deadline, [&]() NO_THREAD_SAFETY_ANALYSIS {
    if (!closed_ && !taken) taken = sum_.take(replica);
    return closed_ || taken;
  });
  if (closed_) return WaitResult::Closed;
  if (!taken) return WaitResult::TimedOut;
  sums = *std::move(taken);
  return WaitResult::Ready;
}

void DelayedReduce::close() {
  MutexLock lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

}  // namespace penstock::runtime
