#include "penstock/simulate/places.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "penstock/util/error.h"

namespace penstock::simulate::detail {

namespace {

struct Range {
  int64_t begin;
  int64_t end;
};

void refuse_outside(size_t stage, const Range& range, int64_t workers) {
  if (range.end <= workers) return;
  throw ConfigError(
      fmt::format("stage {} is placed on workers {} to {}, the cluster has {} workers", stage,
                  range.begin, range.end - 1, workers));
}

void refuse_shared(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].begin >= ranges[i - 1].end) continue;
    throw ConfigError(
        fmt::format("two stages are placed on worker {} of the cluster", ranges[i].begin));
  }
}

/// Where each worker holds one member of one stage.
std::vector<int> places_of_teams(const Costs& costs, const std::vector<int>& teams,
                                 const schedule::WorkerTable& table, int64_t workers) {
  std::vector<int> places(static_cast<size_t>(table.num_workers()));
  std::vector<Range> ranges;
  int64_t next = 0;
  int32_t stage = 0;
  for (const int size : teams) {
    const int replicas = table.replicas(StageId{stage});
    const int first = costs.stages[static_cast<size_t>(stage)].first_worker;
    if (first >= 0) next = first;
    ranges.push_back({next, next + int64_t{replicas} * size});
    refuse_outside(static_cast<size_t>(stage), ranges.back(), workers);
    for (int m = 0; m < size; ++m, ++stage) {
      for (int k = 0; k < replicas; ++k)
        places[table.worker_of_replica(StageId{stage}, k).index()] =
            static_cast<int>(next + int64_t{k} * size + m);
    }
    next = ranges.back().end;
  }
  refuse_shared(std::move(ranges));
  return places;
}

}  // namespace

std::vector<int> places_of(const Costs& costs, const schedule::ScheduleShape& shape,
                           const schedule::WorkerTable& table) {
  const int64_t workers = costs.cluster ? costs.cluster->num_workers() : int64_t{INT32_MAX};
  if (!shape.teams.empty() && !table.has_shared_workers())
    return places_of_teams(costs, shape.teams, table, workers);
  std::vector<int> places;
  places.reserve(static_cast<size_t>(table.num_workers()));
  if (!shape.worker_of_replica.empty()) {
    if (table.num_workers() > workers) {
      throw ConfigError(
          fmt::format("the schedule has {} workers, the cluster {}", table.num_workers(), workers));
    }
    places.resize(static_cast<size_t>(table.num_workers()));
    std::iota(places.begin(), places.end(), 0);
    return places;
  }
  std::vector<Range> ranges;
  int64_t next = 0;
  for (size_t s = 0; s < costs.stages.size(); ++s) {
    if (costs.stages[s].first_worker >= 0) next = costs.stages[s].first_worker;
    ranges.push_back({next, next + table.replicas(StageId{static_cast<int32_t>(s)})});
    refuse_outside(s, ranges.back(), workers);
    while (next < ranges.back().end) places.push_back(static_cast<int>(next++));
  }
  refuse_shared(std::move(ranges));
  return places;
}

}  // namespace penstock::simulate::detail
