// What every worker is doing right now, so that a wait that lasts too long can say who waits for
// what.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "penstock/schedule/action.h"
#include "penstock/schedule/schedule.h"
#include "penstock/schedule/team_places.h"
#include "penstock/util/process/mutex.h"

namespace penstock::runtime {

/// "stage 1", "stages 0, 3", "stage 0, member 1": what each worker holds, of the plan's stages.
std::vector<std::string> worker_labels(const schedule::ScheduleShape& shape);

/// A stage of the schedule as the plan's: "stage 1", "stage 0, member 1".
std::string stage_label(const schedule::ScheduleShape& shape, StageId stage);
/// The action with the plan's stages, in place of those of members.
schedule::Action in_plan(const schedule::TeamPlaces& places, schedule::Action action);

/// Thread-safe. Each worker writes its own entry only; anyone may read.
class StatusBoard {
 public:
  enum class State : uint8_t { Idle, Computing, Waiting, Done, Failed };

  explicit StatusBoard(const schedule::ScheduleShape& shape);

  void set(WorkerId worker, State state, const schedule::Action& action);
  void set(WorkerId worker, State state);
  /// What the worker waits for, in the action that it has set last, is another member of its team.
  void wait_for_member(WorkerId worker, int64_t exchange, int member);

  /// One line per worker: "worker 1 (stage 1): waits 30.0 s for 1RECV_F12 from stage 0".
  std::string report() const;
  /// Those of some workers.
  std::string report(const std::vector<WorkerId>& workers) const;

 private:
  struct Entry {
    State state = State::Idle;
    schedule::Action action;
    std::chrono::steady_clock::time_point since;
    int64_t exchange = -1;  ///< of its team; -1: it does not wait for another member
    int member = 0;
  };
  std::vector<std::string> labels_;
  schedule::TeamPlaces places_;
  mutable Mutex mutex_;
  std::vector<Entry> entries_ GUARDED_BY(mutex_);
};

}  // namespace penstock::runtime
