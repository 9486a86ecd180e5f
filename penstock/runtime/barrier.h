// Waits until all parties are there, again and again; with a deadline, and closable.
#pragma once

#include <cstdint>

#include "penstock/util/mutex.h"

namespace penstock::runtime {

/// Why a wait ended.
enum class WaitResult : uint8_t { Ready, TimedOut, Closed };

/// Thread-safe.
class Barrier {
 public:
  explicit Barrier(int parties) : parties_(parties) {}

  /// Blocks until all parties have called it; adds the time spent waiting to `waiting_ns`. Who
  /// leaves at the deadline closes the barrier: it has been counted, so that the next to come would
  /// find all there.
  WaitResult wait(CondVar::Deadline deadline, int64_t& waiting_ns);
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
