#include "penstock/cluster/topology.h"

#include <algorithm>

#include "penstock/util/check.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::cluster {

Topology::Topology(const Cluster& cluster)
    : unit_size_{1},
      paths_{{.bandwidth_bytes_per_s = INT64_MAX, .by_reference = true, .sums_wait = true}} {
  validate(cluster);
  bool joins_any = false;
  for (const Level& level : cluster.levels) {
    Path path = paths_.back();
    if (level.count > 1 || (!joins_any && &level == &cluster.levels.back())) {
      path.bandwidth_bytes_per_s =
          std::min(path.bandwidth_bytes_per_s, level.bandwidth_bytes_per_s);
      path.latency_ns = saturating_add(path.latency_ns, level.latency_ns);
      path.by_reference = path.by_reference && level.by_reference;
      path.sums_wait = path.sums_wait && (level.by_reference || level.sums_wait);
      if (!level.by_reference) {
        path.processor_ns_per_gb = std::max(path.processor_ns_per_gb, level.processor_ns_per_gb);
        path.processor_ns_per_message =
            std::max(path.processor_ns_per_message, level.processor_ns_per_message);
      }
      joins_any = true;
    }
    unit_size_.push_back(unit_size_.back() * level.count);
    paths_.push_back(path);
  }
}

int Topology::level_of(WorkerRange range) const {
  PENSTOCK_CHECK(range.first >= 0 && range.count >= 1 && range.count <= num_workers() - range.first,
                 range.first, range.count, num_workers());
  return level_between(range.first, range.end() - 1);
}

int Topology::level_between(int a, int b) const {
  PENSTOCK_DCHECK(std::min(a, b) >= 0 && std::max(a, b) < num_workers(), a, b, num_workers());
  int level = 0;
  while (a / unit_size_[static_cast<size_t>(level)] != b / unit_size_[static_cast<size_t>(level)])
    ++level;
  return level;
}

}  // namespace penstock::cluster
