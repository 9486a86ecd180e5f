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

/// A bucket of gradients on its way between the replicas of a stage, or a part of that time.
struct SumEvent {
  StageId stage{};
  MiniBatchId mini_batch{};
  int32_t bucket = 0;  ///< of the stage, in the order of its layers (plan/gradient_sync.h)
  int64_t start_ns = 0;
  int64_t end_ns = 0;

  /// Whether `next` goes on with the same bucket at once.
  bool continues_as(const SumEvent& next) const {
    return stage == next.stage && mini_batch == next.mini_batch && bucket == next.bucket &&
           end_ns == next.start_ns;
  }
  bool operator==(const SumEvent&) const = default;
};

/// What a worker's NIC, or a server's, does beside the worker's computations.
struct SumLane {
  WorkerId worker{-1};  ///< -1: a server's
  int server = -1;
  std::vector<SumEvent> events = {};  ///< in their order

  /// "worker 3, sums", "server 0, sums".
  std::string name() const;
  bool operator==(const SumLane&) const = default;
};

struct Timeline {
  std::string source;  ///< "predicted" or "measured"
  std::vector<std::vector<TimelineEvent>> workers;
  /// Sums that travel while workers compute; those of workers first, ascending. Workers and servers
  /// without any are left out.
  std::vector<SumLane> sums = {};

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
