// A lowered schedule that is never stored: each worker's actions are made as they are read, the
// same actions in the same order as lower(generate(strategy, shape), links). For simulating
// schedules that would not fit into memory.
//
//   LazySchedule lazy(Strategy::OneFOneB, shape, chain_links(shape.num_stages()));
//   LazySchedule::Cursor cursor = lazy.cursor(WorkerId{0});
//   Action action;
//   while (lazy.next(cursor, action)) use(action);
//
// Strategies with a rule for what is in flight (plan::InFlight) are one pattern: a worker goes
// through its micro-batches segment by segment (a mini-batch under flush, otherwise everything),
// runs a forward while fewer than `depth` of them are in flight and a backward otherwise. The
// version that micro-batch b uses is max(0, b - delay) / accumulate under every policy; only the
// delay differs. So only the worker's position has to be remembered. The other strategies have no
// such rule: can_make() is false for them.
//
// Immutable after construction, so thread-safe; cursors belong to their readers.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "penstock/plan/weight_rules.h"
#include "penstock/schedule/action.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/neighbours.h"
#include "penstock/schedule/schedule.h"
#include "penstock/schedule/worker_table.h"

namespace penstock::schedule {

class LazySchedule {
 public:
  /// Whether the strategy has the pattern above, no worker of the shape holds several stages, and
  /// no stage offloads.
  /// O(replicas).
  static bool can_make(Strategy strategy, const ScheduleShape& shape);

  /// Throws ConfigError like generate() and lower(), but without the limit kMaxActions, and where
  /// can_make() is false. O(workers + links).
  LazySchedule(Strategy strategy, const ScheduleShape& shape, const std::vector<StageLink>& links);

  /// One worker's position in its list. Micro-batches are counted locally: number n of replica k of
  /// r is k + n r.
  struct Cursor {
    int32_t stage = 0;
    int32_t replica = 0;
    int64_t count = 0;         ///< micro-batches of this worker
    int64_t next_forward = 0;  ///< local
    int64_t next_backward = 0;
    int64_t segment_end = 0;
    int64_t next_step = 0;
    int64_t steps_due = 0;  ///< steps below this one come before the next compute action
    /// The steps before the first backward come before this compute action.
    int64_t first_position = 0;
    enum class At : uint8_t {
      Begin,
      Recompute,
      Receives,
      Compute,
      Sends,
      AfterCompute,
      Norm,
      Free,
      Step
    } at = At::Begin;
    uint32_t message = 0;
    Action compute;  ///< the compute action whose messages are being read
  };

  Cursor cursor(WorkerId worker) const;
  /// Reads the next action; false at the end of the list. O(1).
  bool next(Cursor& cursor, Action& action) const;

  Strategy strategy() const { return strategy_; }
  const ScheduleShape& shape() const { return shape_; }
  const WorkerTable& table() const { return table_; }
  const Neighbours& neighbours() const { return neighbours_; }
  bool forward_only() const { return !traits(strategy_).trains; }
  /// No worker ever has more forwards than this ahead of its backwards.
  int64_t most_in_flight() const { return most_in_flight_; }
  /// Actions of all workers together; saturates.
  int64_t num_actions() const;
  /// The whole list of a worker; for tests and small schedules.
  std::vector<Action> list(WorkerId worker) const;

 private:
  /// What all workers of one stage share.
  struct StagePattern {
    int64_t depth = 1;  ///< micro-batches in flight
    plan::VersionDelays delays;
    int32_t replicas = 1;
    bool recomputes = false;
    uint32_t first_source = 0;  ///< in peers_; its targets follow its sources
    uint32_t first_target = 0;
    uint32_t end_target = 0;
  };

  const StagePattern& pattern(const Cursor& cursor) const {
    return patterns_[static_cast<size_t>(cursor.stage)];
  }
  int64_t micro_batch(const Cursor& cursor, int64_t local) const {
    return cursor.replica + local * pattern(cursor).replicas;
  }
  int64_t mini_batch(int64_t b) const { return b / shape_.accumulate; }
  int64_t version(int64_t b, int64_t delay) const {
    return b <= delay ? 0 : (b - delay) / shape_.accumulate;
  }
  int64_t segment_end(const Cursor& cursor) const;
  bool choose_compute(Cursor& cursor) const;
  bool next_message(Cursor& cursor, Action& action, Op forward, Op backward,
                    bool from_sources) const;
  void next_step(Cursor& cursor, Action& action) const;
  bool frees_after(const Cursor& cursor) const;
  bool used_later(const Cursor& cursor, int64_t version) const;
  Action step_action(const Cursor& cursor, Op op, int64_t version) const;

  Strategy strategy_;
  ScheduleShape shape_;
  WorkerTable table_;
  Neighbours neighbours_;
  std::vector<StagePattern> patterns_;  ///< per stage
  std::vector<StageId> peers_;
  bool by_mini_batch_ = false;  ///< segments are mini-batches
  int64_t num_steps_ = 0;
  int64_t most_in_flight_ = 0;
};

}  // namespace penstock::schedule
