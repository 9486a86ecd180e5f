// How long an order takes, and why: the longest path through its steps. Messages share links where
// the problem says so (order_wires.h).
//
//   OrderClock clock(problem);
//   OrderTime time = clock.run(order);       // time.end, or time.is_stuck()
//   clock.run(other, time) < time;           // often much sooner, where it is not
//   std::vector<CriticalRun> path = clock.critical_runs(order);
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "penstock/schedule/orders/order_problem.h"
#include "penstock/schedule/orders/order_wires.h"

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

  /// The time of all repetitions. Stuck where the lists wait for each other. O(steps), and O(log
  /// messages under way) more for each message where links are shared. It ends as soon as the time
  /// cannot be less than `best`, and is then as if stuck.
  OrderTime run(const Order& order, const OrderTime& best = {});
  /// Of the last run(), which was not stuck and ended: the longest path from its end back, within
  /// the last repetition.
  std::vector<CriticalRun> critical_runs(const Order& order) const;
  /// How many steps all runs have looked at, had each gone to its end.
  int64_t steps_run() const { return steps_run_; }

 private:
  static constexpr int64_t kNotYet = -1;
  static constexpr int64_t kUnderWay = -2;  ///< done, and on its way

  /// A message that reaches its next wire.
  struct Event {
    int64_t time = 0;
    /// The rule of the simulator for ties: those that have waited first, then by sender, then in
    /// the order in which they were sent.
    uint64_t rank = 0;
    int32_t id = 0;  ///< of the message

    static constexpr uint64_t kHasNotWaited = uint64_t{1} << 63;

    bool is_after(int64_t other_time, uint64_t other_rank) const {
      return time != other_time ? time > other_time : rank > other_rank;
    }
    bool operator>(const Event& other) const { return is_after(other.time, other.rank); }
  };

  /// Workers that wait for each other after each mini-batch.
  struct Team {
    std::vector<int32_t> workers = {};
    int64_t finish = 0;   ///< what each of them does then
    size_t expected = 0;  ///< of them, those that have something to compute
    size_t here = 0;      ///< how many of these have come
    int64_t last = 0;     ///< when the last of these did
  };

  size_t cell(int32_t stage, int32_t micro_batch) const {
    return static_cast<size_t>(stage) * static_cast<size_t>(problem_->num_micro_batches) +
           static_cast<size_t>(micro_batch);
  }
  int64_t time_of(const OrderStep& step) const {
    const OrderProblem::Stage& stage = problem_->stages[static_cast<size_t>(step.stage)];
    if (step.op == Op::Forward) return stage.forward;
    return step.op == Op::BackwardInput ? stage.input : stage.weight;
  }
  /// When it may begin by the data of other stages, kNotYet while that is not there. `before`: the
  /// cells of the earlier repetitions, as in the functions below.
  int64_t ready(const OrderStep& step, size_t before) const;
  /// All that is left for each worker, at the beginning of a run.
  void count_work(const Order& order);
  /// Per worker: after its last F or I, until the last gradient is back at stage 0 and used there.
  std::vector<int64_t> ways_back() const;
  int64_t finish_of(size_t worker) const {
    return team_of_[worker] < 0 ? 0 : teams_[static_cast<size_t>(team_of_[worker])].finish;
  }
  /// The worker cannot go on before `start`, and has been free since `free`.
  void idle(size_t worker, int64_t free, int64_t start) {
    ends_ += start - free;
    const int64_t end = std::max(start + left_[worker], start + left_data_[worker]);
    reaches_best_ = reaches_best_ || end == best_.end;
    is_hopeless_ = end > best_.end || (reaches_best_ && ends_ >= best_.ends);
  }
  /// Goes on with the worker's list as far as its data is there.
  void go_on(const Order& order, int32_t worker);
  /// The worker has done a mini-batch at `now`. Whether it may go on: it was the last of its team,
  /// or has none.
  bool finish(int32_t worker, int64_t now);
  /// Hands the step's result to the next stage, `end` being its end.
  void hand_on(const OrderStep& step, int32_t worker, size_t before, int64_t end);
  /// Sends the message, number `id`.
  void send(size_t id, int32_t link, int32_t sender, int32_t receiver, int64_t now);
  void add_event(int64_t time, uint64_t rank, int32_t id);
  /// The next message reaches its next wire.
  void next_event();
  void wake_all(const Order& order);
  /// Whose message kept the step's own one waiting, and so on: the step at the beginning. Nothing:
  /// it was in an earlier repetition.
  std::optional<OrderStep> cause_of(const OrderStep& sent) const;

  const OrderProblem* problem_;
  OrderWires wires_;
  std::vector<int32_t> worker_of_;  ///< per cell
  // Per repetition and cell: when the result of F, or of I, is where it is needed.
  std::vector<int64_t> forward_there_;
  std::vector<int64_t> input_there_;
  std::vector<int64_t> free_;                 ///< per worker
  std::vector<Team> teams_;                   ///< those that have something to do
  std::vector<int32_t> team_of_;              ///< per worker; -1: none
  std::vector<size_t> may_run_;               ///< per worker: repetitions
  std::vector<size_t> position_;              ///< per worker, in all repetitions of its list
  std::vector<std::vector<int64_t>> starts_;  ///< of the last repetition, per worker and step
  std::vector<int32_t> awake_;
  // Where links are shared; the messages of F, then those of I, each per repetition and cell.
  std::vector<OrderWires::Message> messages_;
  std::vector<int32_t> waits_for_;  ///< the message that it waited for last
  std::vector<Event> events_;       ///< a heap
  uint32_t sent_ = 0;
  // What the time is at least, by what is left for each worker when it has no more gaps.
  std::vector<int64_t> way_back_;   ///< per worker
  std::vector<int64_t> left_;       ///< per worker: all its work
  std::vector<int64_t> left_data_;  ///< per worker: up to its last F or I, and the way back
  int64_t ends_ = 0;                ///< OrderTime's
  OrderTime best_ = {};
  bool reaches_best_ = false;  ///< the end is not before that of the best
  bool is_hopeless_ = false;   ///< not better than the best
  int64_t steps_run_ = 0;
};

inline int64_t OrderClock::ready(const OrderStep& step, size_t before) const {
  const size_t own = before + cell(step.stage, step.micro_batch);
  // What the worker itself has done has ended before it is free.
  if (step.op == Op::BackwardWeight) return input_there_[own] == kNotYet ? kNotYet : 0;
  if (step.op == Op::Forward) {
    if (step.stage == 0) return 0;
    return std::max(forward_there_[before + cell(step.stage - 1, step.micro_batch)], kNotYet);
  }
  if (forward_there_[own] == kNotYet) return kNotYet;
  if (step.stage + 1 == problem_->num_stages()) return 0;
  const int64_t there = input_there_[before + cell(step.stage + 1, step.micro_batch)];
  if (there < 0) return kNotYet;
  return std::max<int64_t>(there - problem_->stages[static_cast<size_t>(step.stage)].again, 0);
}

/// Whether no worker keeps more than the problem allows.
bool fits(const OrderProblem& problem, int32_t worker, const std::vector<OrderStep>& steps);

/// No order is faster, whatever it keeps: the busiest worker's work after its first data can have
/// come and before the rest of the pipeline can have drained.
int64_t least_time(const OrderProblem& problem);

}  // namespace penstock::schedule
