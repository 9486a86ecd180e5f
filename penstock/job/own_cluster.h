// The cluster of the workers of this process.
#pragma once

#include <cstdint>
#include <optional>

#include "penstock/cluster/cluster.h"

namespace penstock::job {

/// Workers joined as `between_gpus` says, whose count does not matter; nothing: as threads that
/// share memory, which add so many bytes of gradients per second and wait so long for a message.
inline cluster::Cluster own_cluster(int workers, int64_t copy_bandwidth_bytes_per_s,
                                    int64_t hand_over_ns,
                                    const std::optional<cluster::Level>& between_gpus) {
  cluster::Cluster cluster = cluster::local_cluster(workers, copy_bandwidth_bytes_per_s);
  cluster::Level& level = cluster.levels.front();
  level.latency_ns = hand_over_ns;
  if (!between_gpus) return cluster;
  level = *between_gpus;
  level.count = workers;
  cluster.device.name = "GPU";
  return cluster;
}

}  // namespace penstock::job
