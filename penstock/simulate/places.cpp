#include "penstock/simulate/places.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "penstock/util/error.h"

namespace penstock::simulate::detail {

std::vector<int> places_of(const Costs& costs, const schedule::ScheduleShape& shape,
                           const schedule::WorkerTable& table) {
  const int64_t workers = costs.cluster ? costs.cluster->num_workers() : int64_t{INT32_MAX};
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
  std::vector<std::pair<int64_t, int64_t>> ranges;
  int64_t next = 0;
  for (size_t s = 0; s < costs.stages.size(); ++s) {
    if (costs.stages[s].first_worker >= 0) next = costs.stages[s].first_worker;
    const int64_t end = next + table.replicas(StageId{static_cast<int32_t>(s)});
    if (end > workers) {
      throw ConfigError(
          fmt::format("stage {} is placed on workers {} to {}, the cluster has {} workers", s, next,
                      end - 1, workers));
    }
    ranges.emplace_back(next, end);
    while (next < end) places.push_back(static_cast<int>(next++));
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].first >= ranges[i - 1].second) continue;
    throw ConfigError(
        fmt::format("two stages are placed on worker {} of the cluster", ranges[i].first));
  }
  return places;
}

}  // namespace penstock::simulate::detail
