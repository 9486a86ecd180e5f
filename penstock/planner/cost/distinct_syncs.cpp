#include "penstock/planner/cost/distinct_syncs.h"

#include "penstock/cluster/topology.h"

namespace penstock::planner {

using plan::GradientSync;

std::vector<GradientSync> distinct_syncs(const cluster::Cluster& cluster) {
  std::vector<GradientSync> syncs{GradientSync::Ordered, GradientSync::Ring};
  if (cluster.cpu_machines.count > 0) {
    syncs.push_back(GradientSync::ParameterServer);
    syncs.push_back(GradientSync::Summation);
  }
  const cluster::Topology topology(cluster);
  const int machine_size = topology.unit_size(cluster.machine_level());
  // All in one machine add as with `ordered`, unless its links are known.
  const bool differs = machine_size < topology.num_workers() || cluster.machine;
  if (machine_size > 1 && differs) syncs.push_back(GradientSync::Hierarchical);
  return syncs;
}

}  // namespace penstock::planner
