// What the rules know about the schedule before they look at its order: numbers and tables whose
// sizes depend only on the schedule's own actions.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/schedule/schedule.h"
#include "penstock/schedule/team_places.h"
#include "penstock/schedule/worker_table.h"
#include "penstock/verify/violation_list.h"

namespace penstock::verify {

using schedule::Action;
using schedule::Op;

struct Facts {
  explicit Facts(const schedule::Schedule& s);

  const schedule::Schedule& schedule;
  schedule::WorkerTable table;
  schedule::TeamPlaces places;
  int64_t num_stages;
  int64_t micro_batches;
  int64_t mini_batches;
  /// The largest number of stages that one worker holds.
  int64_t most_held;
  /// No backward, step or sync is expected (evaluation).
  bool forward_only;

  const std::vector<std::vector<Action>>& workers() const { return schedule.workers; }
  WorkerId owner(StageId stage, MicroBatchId b) const {
    const int replicas = table.replicas(stage);
    return table.worker_of_replica(stage, replicas == 1 ? 0 : static_cast<int>(b.value % replicas));
  }
  /// The members of a team wait for each other there.
  bool is_team_meeting(const Action& action) const {
    return !places.empty() && holds_team_sums(action.op) && places.size(action.stage) > 1;
  }
  /// Index of (stage, micro-batch) in a dense table with num_cells() entries.
  size_t cell(StageId stage, MicroBatchId b) const {
    return stage.index() * static_cast<size_t>(micro_batches) + b.index();
  }
  size_t num_cells() const { return static_cast<size_t>(num_stages * micro_batches); }
};

/// One T for each stage that the current worker holds, found in constant time. Made once for all
/// workers; going to the next worker costs O(stages of that worker).
template <class T>
class HeldStages {
 public:
  explicit HeldStages(const Facts& facts)
      : table_(facts.table), place_(static_cast<size_t>(facts.num_stages), 0) {}

  void move_to(WorkerId worker) {
    const auto held = table_.held_by(worker);
    state_.assign(held.size(), T{});
    for (size_t i = 0; i < held.size(); ++i)
      place_[held[i].stage.index()] = static_cast<int32_t>(i);
  }
  size_t size() const { return state_.size(); }
  /// Position of the stage among those of the worker; the worker holds it.
  size_t place(StageId stage) const { return static_cast<size_t>(place_[stage.index()]); }
  T& operator[](StageId stage) { return state_[place(stage)]; }
  T& at(size_t place) { return state_[place]; }

 private:
  const schedule::WorkerTable& table_;
  std::vector<int32_t> place_;  // by stage
  std::vector<T> state_;        // by place
};

/// Whether the other rules can index their tables with the schedule's numbers: the shape is valid,
/// there is one list per worker, the number of actions is plausible for the shape, and every action
/// names a stage, micro-batch and mini-batch of the shape and is on the worker that runs it.
/// Reports errors under "complete" and "pairing" (messages to impossible stages or to the same
/// worker).
bool check_placement(const schedule::Schedule& schedule, Report& report);

}  // namespace penstock::verify
