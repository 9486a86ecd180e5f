// Decides, without a race, after which mini-batch a stopped run ends: no worker has begun a later
// one.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "penstock/util/ids.h"
#include "penstock/util/process/mutex.h"

namespace penstock::runtime {

/// Thread-safe.
class StopGate {
 public:
  /// Any of `flags` ends the run; null ones are left out.
  explicit StopGate(const std::vector<const std::atomic<bool>*>& flags);

  /// Fabric::begin(): true if the worker may work on the mini-batch.
  bool enter(MiniBatchId mini_batch);
  /// Ends the run as the flags do.
  void stop() { stopped_.store(true, std::memory_order_relaxed); }
  /// Last mini-batch that was begun, -1 if none.
  int64_t last_started() const;

 private:
  bool stop_asked() const;

  std::vector<const std::atomic<bool>*> flags_;
  std::atomic<bool> stopped_{false};
  mutable Mutex mutex_;
  int64_t started_ GUARDED_BY(mutex_) = -1;
  int64_t limit_ GUARDED_BY(mutex_) = INT64_MAX;
};

}  // namespace penstock::runtime
