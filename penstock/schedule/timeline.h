// When each action began and ended on each worker, predicted by the simulator or measured by the
// executor: the same type, so that the two can be compared action by action.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/schedule/action.h"

namespace penstock::schedule {

struct TimelineEvent {
  Action action;
  int64_t start_ns = 0;  ///< since the timeline's beginning
  int64_t end_ns = 0;
  /// Part of the span spent waiting for another worker (receive, send without credit, SYNC, NORM).
  int64_t waiting_ns = 0;

  bool operator==(const TimelineEvent&) const = default;
};

struct Timeline {
  std::string source;  ///< "predicted" or "measured"
  std::vector<std::vector<TimelineEvent>> workers;

  /// End of the last event minus start of the first, over all workers; 0 when empty.
  int64_t makespan_ns() const;
  /// Time in computations (F, B, I, W, R), SYNC, NORM and STEP without waiting.
  int64_t busy_ns(WorkerId worker) const;
  /// Workers that have events: of a rank's timeline only its own have.
  int64_t active_workers() const;
  /// 1 - (sum of busy) / (active workers * makespan); 0 when empty.
  double idle_share() const;
  bool operator==(const Timeline&) const = default;
};

}  // namespace penstock::schedule
