#include "penstock/cluster/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cmath>

#include "penstock/util/arithmetic.h"
#include "penstock/util/error.h"

namespace penstock::cluster {

namespace {

constexpr int64_t kMaxWorkers = 10'000'000;

int64_t count_workers(const Cluster& cluster) {
  int64_t workers = 1;
  for (const Level& level : cluster.levels) workers = saturating_mul(workers, level.count);
  return workers;
}

void validate(const Level& level, size_t position) {
  const auto refuse = [&](std::string_view key, std::string_view expected, int64_t found) {
    throw ConfigError(fmt::format("cluster level {} ('{}'): expected a {} {}, found {}", position, level.name, key, expected, found));
  };
  if (level.count < 1) refuse("count", "of at least 1", level.count);
  if (level.bandwidth_bytes_per_s < 1) refuse("bandwidth", "above zero", level.bandwidth_bytes_per_s);
  if (level.latency_ns < 0) refuse("latency", "of at least 0", level.latency_ns);
}

}  // namespace

int Cluster::num_workers() const { return static_cast<int>(std::clamp<int64_t>(count_workers(*this), INT_MIN, INT_MAX)); }

Cluster local_cluster(int workers, int64_t copy_bandwidth_bytes_per_s) {
  Cluster cluster;
  cluster.levels.push_back({"process", workers, copy_bandwidth_bytes_per_s, 0, true});
  cluster.device.name = "thread";
  validate(cluster);
  return cluster;
}

void validate(const Cluster& cluster) {
  if (cluster.levels.empty()) throw ConfigError("the cluster has no level, expected at least one");
  for (size_t i = 0; i < cluster.levels.size(); ++i) validate(cluster.levels[i], i);
  // A count of 1 multiplies without bound on the number of levels, larger ones reach the limit soon: no wrap either way.
  if (const int64_t workers = count_workers(cluster); workers > kMaxWorkers) {
    throw ConfigError(fmt::format("the counts of the cluster's levels make {} workers, expected at most {}", workers, kMaxWorkers));
  }
  const Device& device = cluster.device;
  if (device.memory_bytes < 0) {
    throw ConfigError(fmt::format("cluster device '{}': expected a memory of at least 0, found {}", device.name, device.memory_bytes));
  }
  if (!std::isfinite(device.speed) || device.speed <= 0) {
    throw ConfigError(fmt::format("cluster device '{}': expected a speed above zero, found {}", device.name, device.speed));
  }
}

}  // namespace penstock::cluster
