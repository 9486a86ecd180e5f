// How long an order takes, and why: the longest path through its steps. Messages take the time that
// the problem gives them, whatever else is under way.
//
//   OrderClock clock(problem);
//   OrderTime time = clock.run(order);       // time.end, or time.is_stuck()
//   std::vector<CriticalRun> path = clock.critical_runs(order);
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <vector>

#include "penstock/schedule/orders/order_problem.h"

namespace penstock::schedule {

/// Smaller is better.
struct OrderTime {
  int64_t end = std::numeric_limits<int64_t>::max();  ///< of the last step
  int64_t ends = 0;                                   ///< of each worker's last step, summed

  bool is_stuck() const { return end == std::numeric_limits<int64_t>::max(); }
  auto operator<=>(const OrderTime&) const = default;
};

/// Steps [first, last] of one worker's list that follow each other without a gap on the longest
/// path.
struct CriticalRun {
  int32_t worker = 0;
  size_t first = 0;
  size_t last = 0;
};

/// Keeps its memory from run to run. Not thread-safe.
class OrderClock {
 public:
  /// `problem` must outlive it.
  explicit OrderClock(const OrderProblem& problem);

  /// The time of all repetitions. Stuck where the lists wait for each other. O(steps).
  OrderTime run(const Order& order);
  /// Of the last run(), which was not stuck: the longest path from its end back, within the last
  /// repetition.
  std::vector<CriticalRun> critical_runs(const Order& order) const;
  /// How many steps all runs have looked at.
  int64_t steps_run() const { return steps_run_; }

 private:
  size_t cell(int32_t stage, int32_t micro_batch) const {
    return static_cast<size_t>(stage) * static_cast<size_t>(problem_->num_micro_batches) +
           static_cast<size_t>(micro_batch);
  }
  int64_t time_of(const OrderStep& step) const;
  /// When its data is there, kNotYet while it is not.
  int64_t ready(const OrderStep& step) const;
  bool run_once(const Order& order);

  const OrderProblem* problem_;
  std::vector<int32_t> worker_of_;  ///< per cell
  std::vector<int64_t> forward_end_;
  std::vector<int64_t> input_end_;
  std::vector<int64_t> free_;  ///< per worker
  std::vector<size_t> position_;
  std::vector<std::vector<int64_t>> starts_;  ///< of the last repetition, per worker and step
  std::vector<int32_t> awake_;
  int64_t steps_run_ = 0;
};

/// Whether no worker keeps more than the problem allows.
bool fits(const OrderProblem& problem, int32_t worker, const std::vector<OrderStep>& steps);

/// No order is faster, whatever it keeps: the busiest worker's work after its first data can have
/// come and before the rest of the pipeline can have drained.
int64_t least_time(const OrderProblem& problem);

}  // namespace penstock::schedule
