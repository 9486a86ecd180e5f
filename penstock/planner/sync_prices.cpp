#include "penstock/planner/sync_prices.h"

#include <algorithm>

#include "penstock/plan/sum_wait.h"
#include "penstock/planner/planner.h"

namespace penstock::planner {

std::vector<plan::GradientSync> distinct_syncs(const cluster::Cluster& cluster) {
  using plan::GradientSync;
  if (cluster.cpu_machines.count == 0) return {GradientSync::Ordered, GradientSync::Ring};
  return {GradientSync::Ordered, GradientSync::Ring, GradientSync::ParameterServer,
          GradientSync::Summation};
}

std::vector<SyncPrice> sync_prices(const profile::Profile& profile, const cluster::Cluster& cluster,
                                   const plan::Plan& plan, bool global_norm) {
  std::vector<SyncPrice> prices;
  const bool between_ranks =
      std::any_of(plan.stages.begin(), plan.stages.end(),
                  [](const plan::Stage& stage) { return !stage.buckets.empty(); });
  if (!between_ranks) return prices;
  for (const plan::GradientSync sync : distinct_syncs(cluster)) {
    plan::Plan other = plan;
    other.sync = to_string(sync);
    other = reprice(other, profile, cluster, "penstock", global_norm);
    SyncPrice price{.sync = sync, .throughput_samples_per_s = other.throughput_samples_per_s};
    for (const plan::Stage& stage : other.stages) {
      if (stage.replicas == 1) continue;
      price.sync_ns = std::max(price.sync_ns, stage.sync_ns);
      price.wait_ns = std::max(price.wait_ns, sum_wait_ns(other, stage, global_norm));
    }
    prices.push_back(price);
  }
  return prices;
}

}  // namespace penstock::planner
