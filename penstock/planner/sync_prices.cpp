#include "penstock/planner/sync_prices.h"

#include <algorithm>

#include "penstock/plan/sum_wait.h"
#include "penstock/planner/cost/distinct_syncs.h"
#include "penstock/planner/cost/named_models.h"
#include "penstock/planner/planner.h"

namespace penstock::planner {

using plan::GradientSync;

namespace {

// How the replicas of a stage add inside a machine.
std::optional<plan::MachineSum> inside(const CostModel& model, const plan::Plan& plan,
                                       size_t stage) {
  const std::vector<std::vector<int>> workers = plan::workers_by_stage(plan);
  const plan::Stage& replicated = plan.stages[stage];
  int level = 0;
  if (workers.empty()) {
    level = model.topology().level_of({replicated.first_worker, replicated.replicas});
  } else {
    const auto [least, most] = std::minmax_element(workers[stage].begin(), workers[stage].end());
    level = model.topology().level_between(*least, *most);
  }
  return model.machine_sum(replicated.weight_bytes, replicated.replicas, level);
}

}  // namespace

std::vector<SyncPrice> sync_prices(const profile::Profile& profile, const cluster::Cluster& cluster,
                                   const plan::Plan& plan, bool global_norm) {
  std::vector<SyncPrice> prices;
  // Under diloco and powersgd nothing travels while workers compute.
  plan::Plan ordered = plan;
  if (plan.sync == GradientSync::DiLoCo || plan.sync == GradientSync::PowerSgd) {
    ordered.set_sync_method(GradientSync::Ordered);
    ordered = reprice(ordered, profile, cluster, "penstock", global_norm);
  }
  const bool between_ranks =
      std::any_of(ordered.stages.begin(), ordered.stages.end(),
                  [](const plan::Stage& stage) { return !stage.buckets.empty(); });
  if (!between_ranks) return prices;
  std::vector<GradientSync> syncs = distinct_syncs(cluster);
  const GradientSync own = plan.sync;
  if (std::find(syncs.begin(), syncs.end(), own) == syncs.end()) syncs.push_back(own);
  std::sort(syncs.begin(), syncs.end());  // as kGradientSyncs
  for (const GradientSync sync : syncs) {
    plan::Plan other = plan;
    other.set_sync_method(sync == own ? plan.sync_method() : sync);
    other = reprice(other, profile, cluster, "penstock", global_norm);
    SyncPrice price{.sync = sync,
                    .throughput_samples_per_s = other.prediction.throughput_samples_per_s};
    const auto model = make_cost_model("penstock", cluster, sync);
    model->add_every(other.sync_every);
    for (size_t s = 0; s < other.stages.size(); ++s) {
      const plan::Stage& stage = other.stages[s];
      if (stage.replicas == 1) continue;
      if (stage.sync_ns > price.sync_ns) price.inside = inside(*model, other, s);
      price.sync_ns = std::max(price.sync_ns, stage.sync_ns);
      price.wait_ns = std::max(price.wait_ns, sum_wait_ns(other, stage, global_norm));
      price.processor_ns = std::max(price.processor_ns, sum_processor_ns(stage));
    }
    prices.push_back(price);
  }
  return prices;
}

}  // namespace penstock::planner
