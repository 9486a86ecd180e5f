// How a run begins its mini-batches, reports, fails and ends: a part of its fabric (fabric.h).
//
//   if (control.begin(worker, mini_batch)) ...                       // the stop gate
//   const RunOutcome outcome = control.finish(wait);                 // on every rank
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "penstock/runtime/fabric/mini_batch_stats.h"
#include "penstock/runtime/fabric/status_board.h"
#include "penstock/runtime/fabric/wait.h"
#include "penstock/util/ids.h"

namespace penstock::runtime {

/// How a run ended; the same on every rank.
struct RunOutcome {
  /// Those that were run, in order. All workers have finished the same ones. Of an endless run:
  /// none.
  std::vector<MiniBatchStats> mini_batches;
  int64_t num_mini_batches = 0;
};

/// Thread-safe as the fabric.
class RunControl {
 public:
  virtual ~RunControl() = default;
  RunControl() = default;
  RunControl(const RunControl&) = delete;
  RunControl& operator=(const RunControl&) = delete;

  /// When the run began, on this rank's clock (steady_clock, ns): 0 of the timelines of all ranks.
  virtual int64_t origin_ns() const = 0;

  /// Whether the worker may begin the mini-batch. After an early stop no worker begins a later one
  /// than any other has begun. Cheap; to be called when a worker meets a mini-batch for the first
  /// time.
  virtual bool begin(WorkerId worker, MiniBatchId mini_batch) = 0;

  /// The loss of one micro-batch, from the stage that makes it. Those of a mini-batch are added up
  /// in the order of its micro-batches.
  virtual void report(MiniBatchId mini_batch, MicroBatchId micro_batch,
                      const MiniBatchStats& part) = 0;

  /// Whether the run has failed, on whichever rank: for waits outside the fabric.
  virtual bool failed() const = 0;
  /// Keeps the first failure and closes the fabric on every rank. Never throws.
  virtual void fail(std::exception_ptr failure) noexcept = 0;

  /// What this rank's workers are doing; they note it themselves.
  virtual StatusBoard& board() = 0;
  /// One line per worker, of all ranks that can be reached: who waits for what, or what else it
  /// does.
  virtual std::string who_waits() = 0;

  /// Ends the run on this rank, when all of its workers are done or have failed; blocks until the
  /// other ranks have. Throws the first failure; TimeoutError when a rank does not answer.
  virtual RunOutcome finish(Wait& wait) = 0;
};

}  // namespace penstock::runtime
