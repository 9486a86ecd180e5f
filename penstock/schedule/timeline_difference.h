// Where prediction and measurement differ, by action and stage.
//
//   TimelineComparison comparison = compare(predicted, measured);
//   // the op and stage that cost the most time more (or less) than predicted
//   comparison.rows.front();
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/schedule/timeline.h"

namespace penstock::schedule {

/// Sums over the actions that both timelines have. Waiting for another worker is counted
/// separately, because other workers cause it.
struct TimelineDifference {
  Op op = Op::Forward;
  StageId stage;
  int64_t count = 0;
  double predicted_ns = 0;
  double measured_ns = 0;
  double predicted_waiting_ns = 0;
  double measured_waiting_ns = 0;

  /// Measured minus predicted, without and with waiting.
  double more_ns() const { return measured_ns - predicted_ns; }
  double more_with_waiting_ns() const {
    return more_ns() + measured_waiting_ns - predicted_waiting_ns;
  }
};

struct TimelineComparison {
  /// Largest |more_with_waiting_ns| first, ties by stage and op.
  std::vector<TimelineDifference> rows;
  int64_t matched = 0;
  int64_t only_predicted = 0;
  int64_t only_measured = 0;
};

/// Matches actions worker by worker by all fields except the weight version; equal actions in their
/// order. O(actions log actions).
TimelineComparison compare(const Timeline& predicted, const Timeline& measured);

}  // namespace penstock::schedule
