#include "penstock/cluster/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>

#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::cluster {

int Cluster::num_workers() const {
  int64_t workers = 1;
  for (const Level& level : levels) workers = saturating_mul(workers, level.count);
  return static_cast<int>(std::clamp<int64_t>(workers, INT_MIN, INT_MAX));
}

const Device& Cluster::device_of(int worker) const {
  const auto after =
      std::upper_bound(groups.begin(), groups.end(), worker,
                       [](int w, const DeviceGroup& group) { return w < group.first; });
  if (after == groups.begin()) return device;
  const DeviceGroup& group = *std::prev(after);
  return worker - group.first < group.count ? group.device : device;
}

bool Cluster::uniform() const {
  int64_t named = 0;
  for (const DeviceGroup& group : groups) named += group.count;
  // The common device counts only if some worker has it.
  const Device& first = groups.empty() || named < num_workers() ? device : groups.front().device;
  return std::all_of(groups.begin(), groups.end(), [&](const DeviceGroup& group) {
    return group.device.speed == first.speed && group.device.memory_bytes == first.memory_bytes &&
           group.device.host_bytes_per_s == first.host_bytes_per_s;
  });
}

int Cluster::machine_level() const {
  for (size_t i = 0; i < levels.size(); ++i) {
    if (levels[i].machine) return static_cast<int>(i) + 1;
  }
  return levels.size() > 1 ? 1 : 0;
}

Cluster local_cluster(int workers, int64_t copy_bandwidth_bytes_per_s) {
  Cluster cluster;
  cluster.levels.push_back({"process", workers, copy_bandwidth_bytes_per_s, 0, true});
  cluster.device.name = "thread";
  validate(cluster);
  return cluster;
}

}  // namespace penstock::cluster
