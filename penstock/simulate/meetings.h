// Where workers wait for each other: at a SYNC, at a NORM, and the members of a team at each
// computation with sums of theirs; internal to the simulator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "penstock/schedule/schedule.h"
#include "penstock/schedule/team_places.h"
#include "penstock/schedule/worker_table.h"
#include "penstock/simulate/values.h"
#include "penstock/simulate/workers.h"
#include "penstock/util/ids.h"

namespace penstock::simulate::detail {

struct Meeting {
  int32_t arrived = 0;
  int32_t first_waiting = -1;  ///< the others follow by WorkerState::next_at_meeting
  int64_t latest_ns = 0;
  MiniBatchId mini_batch;
  schedule::Op op = schedule::Op::Forward;  ///< of a team's meeting
  MicroBatchId micro_batch;                 ///< of a team's meeting

  /// False when the waiting workers are at another mini-batch: then they wait forever.
  bool arrive(MiniBatchId wanted, int64_t now_ns) {
    if (arrived > 0 && mini_batch != wanted) return false;
    mini_batch = wanted;
    latest_ns = std::max(latest_ns, now_ns);
    ++arrived;
    return true;
  }
  /// A team's: false when the waiting members are at another computation; then they wait forever.
  bool arrive(const schedule::Action& wanted, int64_t now_ns) {
    if (arrived > 0 && (op != wanted.op || micro_batch != wanted.micro_batch)) return false;
    op = wanted.op;
    micro_batch = wanted.micro_batch;
    latest_ns = std::max(latest_ns, now_ns);
    ++arrived;
    return true;
  }
};

/// One meeting per team of each replica.
class TeamMeetings {
 public:
  TeamMeetings(const schedule::ScheduleShape& shape, const schedule::WorkerTable& table)
      : table_(table) {
    int32_t stage = 0;
    for (const int size : shape.teams) {
      const int replicas = shape.replicas[static_cast<size_t>(stage)];
      for (int m = 0; m < size; ++m, ++stage)
        places_.push_back({static_cast<int32_t>(meetings_.size()), size});
      meetings_.resize(meetings_.size() + static_cast<size_t>(replicas));
    }
  }

  bool any() const { return !places_.empty(); }
  /// F, R, B and I of a team's stage hold its sums.
  bool meets(const schedule::Action& action) const {
    return schedule::holds_team_sums(action.op) && size(action.stage) > 1;
  }
  int32_t size(StageId stage) const { return any() ? places_[stage.index()].size : 1; }
  Meeting& meeting(StageId stage, int32_t worker) { return meetings_[index_of(stage, worker)]; }
  const Meeting& meeting(StageId stage, int32_t worker) const {
    return meetings_[index_of(stage, worker)];
  }

 private:
  struct Place {
    int32_t first_meeting;
    int32_t size;
  };
  size_t index_of(StageId stage, int32_t worker) const {
    return static_cast<size_t>(places_[stage.index()].first_meeting +
                               table_.replica_on(WorkerId{worker}, stage));
  }

  const schedule::WorkerTable& table_;
  std::vector<Place> places_;  ///< per stage; empty: there are no teams
  std::vector<Meeting> meetings_;
};

template <class Source>
class Meetings {
 public:
  using Worker = typename Workers<Source>::Worker;

  /// `norm_ns`: how long a NORM takes. Keeps references.
  Meetings(const Source& source, const Costs& costs, int64_t norm_ns, Workers<Source>& workers)
      : source_(source),
        costs_(costs),
        norm_ns_(norm_ns),
        syncs_(costs.stages.size()),
        teams_(source.shape(), source.table()),
        workers_(workers) {}

  /// Whether the worker has to meet its team before its action.
  bool meets_team(const Worker& worker) const {
    return teams_.any() && !worker.together && teams_.meets(worker.action);
  }
  /// False unless the worker is the last of its team.
  bool team(Worker& worker, int32_t id) {
    Meeting& meeting = teams_.meeting(worker.action.stage, id);
    if (!meeting.arrive(worker.action, worker.now_ns)) return false;  // waits forever
    if (meeting.arrived < teams_.size(worker.action.stage)) {
      worker.next_at_meeting = std::exchange(meeting.first_waiting, id);
      return false;
    }
    const Meeting complete = std::exchange(meeting, {});
    for (int32_t other = complete.first_waiting; other >= 0;) {
      Worker& waiting = workers_.at(other);
      workers_.wait_for_team(waiting, complete.latest_ns);
      workers_.wake(other);
      other = waiting.next_at_meeting;
    }
    workers_.wait_for_team(worker, complete.latest_ns);
    return true;
  }

  /// False unless the worker is the last replica of the stage.
  bool sync(Worker& worker, int32_t id) {
    const StageId stage = worker.action.stage;
    return meet(worker, id, syncs_[stage.index()], source_.table().replicas(stage),
                costs_.stages[stage.index()].sync_ns);
  }
  /// False unless the worker is the last of all.
  bool norm(Worker& worker, int32_t id) {
    return meet(worker, id, norm_, source_.table().num_workers(), norm_ns_);
  }

  /// How many workers wait.
  int32_t at_sync(StageId stage) const { return syncs_[stage.index()].arrived; }
  int32_t at_norm() const { return norm_.arrived; }
  int32_t at_team(StageId stage, int32_t id) const { return teams_.meeting(stage, id).arrived; }
  int32_t team_size(StageId stage) const { return teams_.size(stage); }

 private:
  bool meet(Worker& worker, int32_t id, Meeting& meeting, int32_t size, int64_t duration_ns) {
    if (!meeting.arrive(worker.action.mini_batch, worker.now_ns)) return false;  // waits forever
    if (meeting.arrived < size) {
      worker.next_at_meeting = std::exchange(meeting.first_waiting, id);
      return false;
    }
    const Meeting complete = std::exchange(meeting, {});
    for (int32_t other = complete.first_waiting; other >= 0;) {
      Worker& waiting = workers_.at(other);
      workers_.finish(waiting, other, complete.latest_ns - waiting.now_ns, duration_ns);
      workers_.wake(other);
      other = waiting.next_at_meeting;
    }
    workers_.finish(worker, id, complete.latest_ns - worker.now_ns, duration_ns);
    return true;
  }

  const Source& source_;
  const Costs& costs_;
  const int64_t norm_ns_;
  std::vector<Meeting> syncs_;  ///< per stage
  TeamMeetings teams_;
  Meeting norm_;
  Workers<Source>& workers_;
};

}  // namespace penstock::simulate::detail
