// A worker's way through a schedule that goes on for ever. The first stage learns from the source
// that the stream has ended, and tells the stages behind it by a message without tensors in the
// place of the first frame that never comes. Internal to runtime.
//
//   while (walk.next()) run(walk.action());
#pragma once

#include <cstdint>

#include "penstock/runtime/stage_context.h"
#include "penstock/runtime/worker_timeline.h"
#include "penstock/schedule/lazy_schedule.h"

namespace penstock::runtime {

/// Not thread-safe: its worker owns it.
class EndlessWalk {
 public:
  /// `module`: of the worker's stage. `block`: what waits for the fabric.
  EndlessWalk(WorkerId worker, const Run& run, Fabric& fabric, const StageModule& module,
              WorkerTimeline& timeline, Blocking block);

  /// Goes to the worker's next action; false: the stream has ended. The first stage blocks until
  /// its next frame is there.
  bool next();
  /// Where next() is; outlives what it fails with.
  const schedule::Action& action() const { return action_; }
  /// The micro-batch does not exist: also the stages behind hear of it.
  void end_before(MicroBatchId micro_batch);

 private:
  /// Whether the action belongs to a micro-batch that exists.
  bool takes_part();
  bool next_is_there(MicroBatchId micro_batch);

  WorkerId worker_;
  const Run& run_;
  Fabric& fabric_;
  const StageModule& module_;
  WorkerTimeline& timeline_;
  Blocking block_;
  schedule::LazySchedule::Cursor cursor_;
  schedule::Action action_;
  int64_t last_entered_ = -1;
  int64_t end_ = INT64_MAX;  ///< the number of micro-batches, once it is known
};

}  // namespace penstock::runtime
