// A lowered schedule that is never written down: each worker's actions are made as they are read, the same ones in the same order as
// lower(generate(kind, shape), links). For simulating what would not fit into memory.
//
//   LazySchedule lazy(Kind::OneFOneB, shape, chain_links(shape.num_stages()));
//   LazySchedule::Cursor cursor = lazy.cursor(WorkerId{0});
//   Action action;
//   while (lazy.next(cursor, action)) use(action);
//
// All of today's kinds are one pattern: a worker goes through its micro-batches segment by segment (a mini-batch under flush, otherwise
// everything), runs a forward while fewer than `depth` of them are in flight and a backward otherwise. The version that micro-batch b uses
// is max(0, b - delay) / accumulate under every policy; only the delay differs. So nothing needs to be remembered but where the worker
// stands.
//
// Immutable after construction, so thread-safe; cursors belong to their readers.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "penstock/schedule/action.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/neighbours.h"
#include "penstock/schedule/schedule.h"
#include "penstock/schedule/worker_table.h"

namespace penstock::schedule {

class LazySchedule {
 public:
  /// Throws ConfigError as generate() and lower(), but knows no kMaxActions. O(workers + links).
  LazySchedule(Kind kind, const ScheduleShape& shape, const std::vector<StageLink>& links);

  /// Where one worker stands in its list. Micro-batches are counted locally: number n of replica k of r is k + n r.
  struct Cursor {
    int32_t stage = 0;
    int32_t replica = 0;
    int64_t count = 0;         ///< micro-batches of this worker
    int64_t next_forward = 0;  ///< local
    int64_t next_backward = 0;
    int64_t segment_end = 0;
    int64_t next_step = 0;
    int64_t steps_due = 0;       ///< steps below this one stand before the next compute action
    int64_t first_position = 0;  ///< compute action before which the steps stand that come before the first backward
    enum class At : uint8_t { Begin, Receives, Compute, Sends, AfterCompute, Free, Step } at = At::Begin;
    bool synced = false;  ///< the SYNC of next_step has been read
    uint32_t message = 0;
    Action compute;  ///< the compute action whose messages are being read
  };

  Cursor cursor(WorkerId worker) const;
  /// Reads the next action; false at the end of the list. O(1).
  bool next(Cursor& cursor, Action& action) const;

  Kind kind() const { return kind_; }
  const ScheduleShape& shape() const { return shape_; }
  const WorkerTable& table() const { return table_; }
  const Neighbours& neighbours() const { return neighbours_; }
  bool forward_only() const { return num_steps_ == 0; }
  /// Of all workers together, saturating.
  int64_t num_actions() const;
  /// The whole list of a worker; for tests and small schedules.
  std::vector<Action> list(WorkerId worker) const;

 private:
  /// Which version a stage uses for a micro-batch, forward and backward: max(0, b - delay) / accumulate.
  struct Delays {
    int64_t forward = 0;
    int64_t backward = 0;
  };

  int64_t micro_batch(const Cursor& cursor, int64_t local) const {
    return cursor.replica + local * shape_.replicas[static_cast<size_t>(cursor.stage)];
  }
  int64_t mini_batch(int64_t b) const { return b / shape_.accumulate; }
  int64_t version(int64_t b, int64_t delay) const { return b <= delay ? 0 : (b - delay) / shape_.accumulate; }
  int64_t segment_end(const Cursor& cursor) const;
  bool choose_compute(Cursor& cursor) const;
  bool next_message(Cursor& cursor, Action& action, Op forward, Op backward, bool from_sources) const;
  bool next_step(Cursor& cursor, Action& action) const;
  bool frees_after(const Cursor& cursor) const;
  bool used_later(const Cursor& cursor, int64_t version) const;
  Action step_action(const Cursor& cursor, Op op, int64_t version) const;

  Kind kind_;
  ScheduleShape shape_;
  WorkerTable table_;
  Neighbours neighbours_;
  std::vector<int64_t> depths_;  ///< per stage: micro-batches in flight
  std::vector<Delays> delays_;   ///< per stage
  bool by_mini_batch_ = false;   ///< segments are mini-batches
  int64_t num_steps_ = 0;
};

}  // namespace penstock::schedule
