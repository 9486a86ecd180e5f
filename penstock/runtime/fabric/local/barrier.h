// Waits until all parties are there, again and again; with a deadline, and closable.
#pragma once

#include <cstdint>

#include "penstock/runtime/fabric/wait.h"
#include "penstock/util/process/mutex.h"

namespace penstock::runtime {

/// Thread-safe.
class Barrier {
 public:
  explicit Barrier(int parties) : parties_(parties) {}

  /// Blocks until all parties have called it. A party that times out closes the barrier, because it
  /// was already counted: the next to come would find all parties there.
  WaitResult wait(Wait& wait);
  /// Wakes everybody; all later calls return Closed.
  void close();

 private:
  int parties_;
  Mutex mutex_;
  CondVar changed_;
  int arrived_ GUARDED_BY(mutex_) = 0;
  int64_t generation_ GUARDED_BY(mutex_) = 0;
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace penstock::runtime
