// Who watches a training run.
#pragma once

#include <cstdint>

#include "penstock/schedule/timeline.h"
#include "penstock/train/train_result.h"
#include "penstock/util/ids.h"

namespace penstock::train {

/// How far a run is; passed to observers.
struct Progress {
  int64_t epoch = 0;  ///< from 0
  int64_t epochs = 0;
  int64_t mini_batch = 0;    ///< finished in this epoch
  int64_t mini_batches = 0;  ///< of this epoch when the run leaves it: fewer at max_steps
  int64_t step = 0;          ///< optimiser steps, over all runs
  int64_t samples = 0;       ///< finished since the segment began
  double loss = 0;           ///< mean of the last mini-batch
  double accuracy = 0;       ///< share of the epoch's targets so far that were right; NaN: none
  double samples_per_s = 0;  ///< since the segment began
};

/// Receives the progress of a run. on_mini_batch is called from worker threads, one call at a time,
/// and must be quick; the others, but on_action, from train()'s own thread.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void on_mini_batch(const Progress&) {}
  virtual void on_epoch(const EpochSummary&) {}
  /// Of those within an epoch; on_epoch() has the others.
  virtual void on_evaluation(const Evaluation&) {}
  /// What a worker of this rank has done, as runtime::RunOptions::on_action: several at a time.
  virtual void on_action(WorkerId, const schedule::TimelineEvent&) {}
  /// Whether on_action is called at all.
  virtual bool watches_actions() const { return false; }
};

}  // namespace penstock::train
