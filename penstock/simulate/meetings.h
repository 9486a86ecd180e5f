// Where workers wait for each other, at a SYNC or a NORM; internal to the simulator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "penstock/simulate/values.h"
#include "penstock/simulate/workers.h"
#include "penstock/util/ids.h"

namespace penstock::simulate::detail {

struct Meeting {
  int32_t arrived = 0;
  int32_t first_waiting = -1;  ///< the others follow by WorkerState::next_at_meeting
  int64_t latest_ns = 0;
  MiniBatchId mini_batch;

  /// False when the waiting workers are at another mini-batch: then they wait forever.
  bool arrive(MiniBatchId wanted, int64_t now_ns) {
    if (arrived > 0 && mini_batch != wanted) return false;
    mini_batch = wanted;
    latest_ns = std::max(latest_ns, now_ns);
    ++arrived;
    return true;
  }
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
        workers_(workers) {}

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
  Meeting norm_;
  Workers<Source>& workers_;
};

}  // namespace penstock::simulate::detail
