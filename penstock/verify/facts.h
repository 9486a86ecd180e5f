// What the rules know about the schedule before they look at its order: numbers and tables, all of them sized by the schedule's own
// actions.
#pragma once

#include <cstdint>
#include <optional>

#include "penstock/schedule/schedule.h"
#include "penstock/schedule/worker_table.h"
#include "penstock/verify/report.h"

namespace penstock::verify {

using schedule::Action;
using schedule::Op;

struct Facts {
  explicit Facts(const schedule::Schedule& s);

  const schedule::Schedule& schedule;
  schedule::WorkerTable table;
  int64_t num_stages;
  int64_t micro_batches;
  int64_t mini_batches;
  /// No backward, step or sync is expected (evaluation).
  bool forward_only;

  const std::vector<std::vector<Action>>& workers() const { return schedule.workers; }
  /// Index of (stage, micro-batch) in a dense table with num_cells() entries.
  size_t cell(StageId stage, MicroBatchId b) const { return stage.index() * static_cast<size_t>(micro_batches) + b.index(); }
  size_t num_cells() const { return static_cast<size_t>(num_stages * micro_batches); }
};

/// Whether the other rules can index their tables with the schedule's numbers: the shape is valid, there is one list per worker, the number
/// of actions is not absurdly small for the shape, and every action names a stage, micro-batch and mini-batch of the shape and stands on
/// the worker that runs it. Reports what is wrong under "complete" and "pairing" (messages to stages that cannot be).
bool check_placement(const schedule::Schedule& schedule, Report& report);

}  // namespace penstock::verify
