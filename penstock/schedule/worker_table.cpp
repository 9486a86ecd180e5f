#include "penstock/schedule/worker_table.h"

#include <algorithm>
#include <numeric>

namespace penstock::schedule {

WorkerTable::WorkerTable(const ScheduleShape& shape) {
  first_replica_.reserve(shape.replicas.size() + 1);
  first_replica_.push_back(0);
  for (const int count : shape.replicas) first_replica_.push_back(first_replica_.back() + count);
  workers_by_stage_.resize(static_cast<size_t>(first_replica_.back()));
  if (shape.worker_of_replica.empty()) {
    std::iota(workers_by_stage_.begin(), workers_by_stage_.end(), 0);
  } else {
    workers_by_stage_.assign(shape.worker_of_replica.begin(), shape.worker_of_replica.end());
  }
  // A counting sort by worker; each worker's stages are then ascending.
  first_stage_.resize(static_cast<size_t>(shape.num_workers()) + 1, 0);
  for (const int32_t worker : workers_by_stage_) ++first_stage_[static_cast<size_t>(worker) + 1];
  std::partial_sum(first_stage_.begin(), first_stage_.end(), first_stage_.begin());
  std::vector<int32_t> next(first_stage_.begin(), first_stage_.end() - 1);
  held_.resize(workers_by_stage_.size());
  for (int32_t s = 0; s < shape.num_stages(); ++s) {
    const int32_t first = first_replica_[static_cast<size_t>(s)];
    for (int32_t i = first; i < first_replica_[static_cast<size_t>(s) + 1]; ++i) {
      const auto worker = static_cast<size_t>(workers_by_stage_[static_cast<size_t>(i)]);
      held_[static_cast<size_t>(next[worker]++)] = {StageId{s}, i - first};
    }
  }
}

int WorkerTable::replica_on(WorkerId worker, StageId stage) const {
  const std::span<const Held> held = held_by(worker);
  const auto found =
      std::lower_bound(held.begin(), held.end(), stage,
                       [](const Held& each, StageId wanted) { return each.stage < wanted; });
  return found != held.end() && found->stage == stage ? found->replica : -1;
}

}  // namespace penstock::schedule
