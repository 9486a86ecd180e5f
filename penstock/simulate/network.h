// The cluster as planner and simulator see it today: one flat network at the speed of its slowest level. Hierarchies belong here later.
#pragma once

#include <cstdint>

#include "penstock/cluster/cluster.h"

namespace penstock::simulate {

struct Network {
  int64_t bandwidth_bytes_per_s = 1;  ///< of the slowest level that joins anything: gradients, and messages unless `by_reference`
  int64_t latency_ns = 0;             ///< one way, all levels together
  bool by_reference = false;          ///< messages between stages cost latency only
  int levels_joined = 0;              ///< levels with a count above 1; with more than one the flat view is pessimistic
};

/// Levels with a count of 1 join nothing and are skipped. Messages go by reference only if the outermost remaining level does.
/// Throws ConfigError as cluster::validate.
Network flat_network(const cluster::Cluster& cluster);

/// How long `bytes` take at `bandwidth_bytes_per_s`, rounded up; 0 when the bandwidth is 0 (by reference). Saturates.
int64_t transfer_ns(int64_t bytes, int64_t bandwidth_bytes_per_s);

/// One gradient synchronisation of `weight_bytes` over `replicas` workers, by ring or in shared memory: 2(r-1)/r * W / B + latency, and 0
/// for one replica. Saturates.
int64_t sync_ns(int64_t weight_bytes, int replicas, const Network& network);

}  // namespace penstock::simulate
