#include "penstock/schedule/schedule.h"

#include <fmt/format.h>

#include <algorithm>

#include "penstock/util/arithmetic.h"
#include "penstock/util/check.h"

namespace penstock::schedule {

int ScheduleShape::num_workers() const {
  int64_t sum = 0;
  for (const int count : replicas) sum += count;
  return static_cast<int>(std::min<int64_t>(sum, INT32_MAX));
}

WorkerId ScheduleShape::first_worker(StageId stage) const {
  PENSTOCK_CHECK(stage.value >= 0 && stage.value < num_stages(), stage, num_stages());
  int first = 0;
  for (int s = 0; s < stage.value; ++s) first += replicas[static_cast<size_t>(s)];
  return WorkerId{first};
}

StageId ScheduleShape::stage_of(WorkerId worker) const {
  PENSTOCK_CHECK(worker.value >= 0, worker);
  int end = 0;
  for (int s = 0; s < num_stages(); ++s) {
    end += replicas[static_cast<size_t>(s)];
    if (worker.value < end) return StageId{s};
  }
  PENSTOCK_CHECK(false, worker, end);
  return StageId{-1};
}

WorkerId ScheduleShape::worker_of(StageId stage, MicroBatchId b) const {
  const WorkerId first = first_worker(stage);
  return WorkerId{first.value + static_cast<int32_t>(b.value % replicas[stage.index()])};
}

void validate(const ScheduleShape& shape, int64_t max_actions) {
  if (shape.replicas.empty()) throw ConfigError("a schedule needs at least 1 stage, found none");
  int64_t workers = 0;
  for (size_t s = 0; s < shape.replicas.size(); ++s) {
    const int count = shape.replicas[s];
    if (count < 1) throw ConfigError(fmt::format("stage {} has {} replicas, expected at least 1", s, count));
    workers += count;
    if (workers > kMaxWorkers) {
      throw ConfigError(fmt::format("a schedule holds at most {} workers, found {} in the first {} stages", kMaxWorkers, workers, s + 1));
    }
  }
  if (shape.micro_batches < 0) throw ConfigError(fmt::format("micro-batches must be at least 0, found {}", shape.micro_batches));
  if (shape.accumulate < 1) throw ConfigError(fmt::format("accumulate must be at least 1 micro-batch, found {}", shape.accumulate));
  const int64_t actions = saturating_mul(saturating_mul(2, shape.num_stages()), shape.micro_batches);
  if (actions > max_actions) {
    throw ConfigError(fmt::format("{} micro-batches over {} stages are more than {} actions; train in several schedules instead",
                                  shape.micro_batches, shape.num_stages(), max_actions));
  }
  if (shape.policy == WeightPolicy::TwoBuffered && shape.accumulate < pipeline_depth(shape)) {
    throw ConfigError(
        fmt::format("2bw needs at least as many micro-batches per step as the pipeline is deep: accumulate is {}, depth is {}",
                    shape.accumulate, pipeline_depth(shape)));
  }
}

int64_t Schedule::num_actions() const {
  int64_t sum = 0;
  for (const auto& list : workers) sum += static_cast<int64_t>(list.size());
  return sum;
}

std::vector<StageLink> chain_links(int num_stages) {
  std::vector<StageLink> links;
  for (int s = 0; s + 1 < num_stages; ++s) links.push_back({StageId{s}, StageId{s + 1}});
  return links;
}

int64_t warmup_depth(const ScheduleShape& shape, StageId stage) {
  PENSTOCK_CHECK(stage.value >= 0 && stage.value < shape.num_stages(), stage, shape.num_stages());
  int64_t workers = 0;
  for (size_t s = stage.index(); s < shape.replicas.size(); ++s) workers += shape.replicas[s];
  return ceil_div(workers, shape.replicas[stage.index()]);
}

std::vector<int64_t> warmup_depths(const ScheduleShape& shape) {
  std::vector<int64_t> depths(shape.replicas.size());
  int64_t workers = 0;
  for (size_t s = depths.size(); s-- > 0;) {
    workers += shape.replicas[s];
    depths[s] = ceil_div(workers, shape.replicas[s]);
  }
  return depths;
}

int64_t pipeline_depth(const ScheduleShape& shape) {
  int64_t depth = 1;
  int64_t workers = 0;
  for (size_t s = shape.replicas.size(); s-- > 0;) {
    workers += shape.replicas[s];
    depth = std::max(depth, (ceil_div(workers, shape.replicas[s]) - 1) * shape.replicas[s] + 1);
  }
  return depth;
}

}  // namespace penstock::schedule
