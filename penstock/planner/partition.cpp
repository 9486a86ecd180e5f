#include "penstock/planner/partition.h"

#include <numeric>

namespace penstock::planner {

void Partition::append(int end, cluster::WorkerRange place, bool recomputes) {
  ends.push_back(end);
  places.push_back(place);
  recompute.push_back(recomputes);
}

int Partition::num_workers() const {
  return std::accumulate(
      places.begin(), places.end(), 0,
      [](int sum, const cluster::WorkerRange& place) { return sum + place.count; });
}

std::vector<int> Partition::replicas() const {
  std::vector<int> result;
  for (const cluster::WorkerRange& place : places) result.push_back(place.count);
  return result;
}

}  // namespace penstock::planner
