#include "penstock/planner/cost/distinct_syncs.h"

#include <algorithm>
#include <memory>

#include "penstock/cluster/topology.h"
#include "penstock/planner/cost/named_models.h"

namespace penstock::planner {

using plan::GradientSync;

namespace {

// Without servers a cost is a latency and a time per byte: two numbers of bytes say it all.
constexpr int64_t kFewBytes = 1;
constexpr int64_t kManyBytes = int64_t{1} << 40;

bool costs_no_more(const CostModel& a, const CostModel& b, int replicas, int level) {
  return a.sync_ns(kFewBytes, replicas, level) <= b.sync_ns(kFewBytes, replicas, level) &&
         a.sync_ns(kManyBytes, replicas, level) <= b.sync_ns(kManyBytes, replicas, level) &&
         a.processor_ns(kManyBytes, replicas, level, /*servers=*/false) <=
             b.processor_ns(kManyBytes, replicas, level, /*servers=*/false);
}

bool never_costs_more(const CostModel& a, const CostModel& b) {
  const cluster::Topology& topology = a.topology();
  for (int level = 1; level <= topology.num_levels(); ++level) {
    for (int replicas = 2; replicas <= topology.unit_size(level); ++replicas)
      if (!costs_no_more(a, b, replicas, level)) return false;
  }
  return true;
}

}  // namespace

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

std::vector<GradientSync> syncs_to_search(const cluster::Cluster& cluster, FloatType precision) {
  constexpr int kMostWorkers = 4096;
  std::vector<GradientSync> syncs = distinct_syncs(cluster);
  const cluster::Topology topology(cluster);
  if (topology.path(topology.num_levels()).by_reference) return {GradientSync::Ordered};
  if (cluster.cpu_machines.count > 0 || cluster.num_workers() > kMostWorkers) return syncs;
  std::vector<std::unique_ptr<CostModel>> models;
  for (const GradientSync sync : syncs)
    models.push_back(make_cost_model("penstock", cluster, sync, SyncOverlap::Hidden, precision));
  const auto is_needed = [&](size_t s) {
    for (size_t other = 0; other < models.size(); ++other) {
      if (other == s || !never_costs_more(*models[other], *models[s])) continue;
      if (other < s || !never_costs_more(*models[s], *models[other])) return false;
    }
    return true;
  };
  std::vector<GradientSync> needed;
  for (size_t s = 0; s < syncs.size(); ++s)
    if (is_needed(s)) needed.push_back(syncs[s]);
  return needed;
}

}  // namespace penstock::planner
