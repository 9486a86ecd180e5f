// Which stage a worker belongs to and which worker runs a micro-batch, as tables: ScheduleShape's functions of the same names cost
// O(stages) a call. Made for a valid shape (validate()).
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/schedule/schedule.h"

namespace penstock::schedule {

class WorkerTable {
 public:
  explicit WorkerTable(const ScheduleShape& shape) : replicas_(shape.replicas) {
    first_.reserve(replicas_.size());
    int32_t next = 0;
    for (int s = 0; s < shape.num_stages(); ++s) {
      first_.push_back(next);
      next += replicas_[static_cast<size_t>(s)];
      stage_of_.insert(stage_of_.end(), static_cast<size_t>(replicas_[static_cast<size_t>(s)]), s);
    }
  }

  int32_t num_workers() const { return static_cast<int32_t>(stage_of_.size()); }
  StageId stage_of(WorkerId worker) const { return StageId{stage_of_[worker.index()]}; }
  WorkerId first_worker(StageId stage) const { return WorkerId{first_[stage.index()]}; }
  int replicas(StageId stage) const { return replicas_[stage.index()]; }
  WorkerId worker_of(StageId stage, MicroBatchId b) const {
    return WorkerId{first_[stage.index()] + static_cast<int32_t>(b.value % replicas_[stage.index()])};
  }

 private:
  std::vector<int> replicas_;
  std::vector<int32_t> first_;
  std::vector<int32_t> stage_of_;
};

}  // namespace penstock::schedule
