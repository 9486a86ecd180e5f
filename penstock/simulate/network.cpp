#include "penstock/simulate/network.h"

#include <algorithm>

#include "penstock/util/arithmetic.h"

namespace penstock::simulate {

namespace {

constexpr int64_t kNsPerSecond = 1'000'000'000;

// bytes * factor / divisor seconds in ns, rounded up. 128 bits hold every product of these ranges.
int64_t scaled_ns(__int128 bytes, int64_t bandwidth_bytes_per_s) {
  const __int128 ns = (bytes * kNsPerSecond + bandwidth_bytes_per_s - 1) / bandwidth_bytes_per_s;
  return ns > INT64_MAX ? INT64_MAX : static_cast<int64_t>(ns);
}

}  // namespace

Network flat_network(const cluster::Cluster& cluster) {
  cluster::validate(cluster);
  Network network;
  network.by_reference = cluster.levels.front().by_reference;
  network.bandwidth_bytes_per_s = cluster.levels.front().bandwidth_bytes_per_s;
  for (const cluster::Level& level : cluster.levels) {
    if (level.count == 1) continue;
    const bool first = network.levels_joined == 0;
    network.bandwidth_bytes_per_s =
        first ? level.bandwidth_bytes_per_s : std::min(network.bandwidth_bytes_per_s, level.bandwidth_bytes_per_s);
    network.latency_ns = saturating_add(network.latency_ns, level.latency_ns);
    network.by_reference = level.by_reference;
    ++network.levels_joined;
  }
  return network;
}

int64_t transfer_ns(int64_t bytes, int64_t bandwidth_bytes_per_s) {
  if (bandwidth_bytes_per_s == 0 || bytes == 0) return 0;
  return scaled_ns(bytes, bandwidth_bytes_per_s);
}

int64_t sync_ns(int64_t weight_bytes, int replicas, const Network& network) {
  if (replicas <= 1) return 0;
  const __int128 moved = (static_cast<__int128>(weight_bytes) * 2 * (replicas - 1) + replicas - 1) / replicas;
  return saturating_add(scaled_ns(moved, network.bandwidth_bytes_per_s), network.latency_ns);
}

}  // namespace penstock::simulate
