// Which worker runs what, as tables. The shape must be valid (validate()).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "penstock/schedule/schedule.h"

namespace penstock::schedule {

class WorkerTable {
 public:
  /// O(replicas).
  explicit WorkerTable(const ScheduleShape& shape);

  int32_t num_workers() const { return static_cast<int32_t>(first_stage_.size()) - 1; }
  int replicas(StageId stage) const {
    return first_replica_[stage.index() + 1] - first_replica_[stage.index()];
  }
  /// The worker that runs micro-batch b of the stage: round-robin, replica b mod r (SOSP 2019,
  /// 3.2).
  WorkerId worker_of(StageId stage, MicroBatchId b) const {
    return worker_of_replica(stage, static_cast<int>(b.value % replicas(stage)));
  }
  WorkerId worker_of_replica(StageId stage, int replica) const {
    const auto first = static_cast<size_t>(first_replica_[stage.index()]);
    return WorkerId{workers_by_stage_[first + static_cast<size_t>(replica)]};
  }
  /// What a worker holds, ascending by stage: at least one.
  struct Held {
    StageId stage;
    int replica = 0;
  };
  std::span<const Held> held_by(WorkerId worker) const {
    const auto first = static_cast<size_t>(first_stage_[worker.index()]);
    return std::span(held_).subspan(first,
                                    static_cast<size_t>(first_stage_[worker.index() + 1]) - first);
  }
  /// Which replica of the stage the worker holds, -1 when none. O(log stages of the worker).
  int replica_on(WorkerId worker, StageId stage) const;
  /// The first of the stages that the worker holds; its only one where no worker holds several.
  StageId first_stage_of(WorkerId worker) const {
    return held_[static_cast<size_t>(first_stage_[worker.index()])].stage;
  }
  /// Whether some worker holds several stages.
  bool has_shared_workers() const { return static_cast<int32_t>(held_.size()) > num_workers(); }

 private:
  std::vector<int32_t> first_replica_;  ///< by stage, and one more: into workers_by_stage_
  std::vector<int32_t> workers_by_stage_;
  std::vector<int32_t> first_stage_;  ///< by worker, and one more: into held_
  std::vector<Held> held_;
};

}  // namespace penstock::schedule
