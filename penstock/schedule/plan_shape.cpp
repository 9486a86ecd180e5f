#include "penstock/schedule/plan_shape.h"

#include <algorithm>
#include <vector>

#include "penstock/cluster/topology.h"
#include "penstock/util/arithmetic.h"
#include "penstock/util/rounding.h"

namespace penstock::schedule {
namespace {

int worker_of(const plan::Plan& plan, size_t stage) {
  if (plan.worker_of_replica.empty()) return plan.stages[stage].first_worker;
  size_t first = 0;
  for (size_t s = 0; s < stage; ++s) first += static_cast<size_t>(plan.stages[s].replicas);
  return first < plan.worker_of_replica.size() ? plan.worker_of_replica[first] : -1;
}

/// From a stage to the next, between their first replicas.
int64_t message_ns(const plan::Plan& plan, const cluster::Topology& topology, size_t stage) {
  int64_t bytes = 0;
  for (const plan::Link& link : plan.links) {
    if (link.from.index() == stage && link.to.index() == stage + 1)
      bytes = saturating_add(bytes, link.bytes);
  }
  const int from = worker_of(plan, stage);
  const int to = worker_of(plan, stage + 1);
  const bool placed = std::min(from, to) >= 0 && std::max(from, to) < topology.num_workers();
  const cluster::Path& path =
      topology.path(placed ? topology.level_between(from, to) : topology.num_levels());
  const double ns = path.by_reference ? 0
                                      : static_cast<double>(bytes) * 1e9 /
                                            static_cast<double>(path.bandwidth_bytes_per_s);
  return saturating_add(path.latency_ns, nearest(ns));
}

std::vector<StepCosts> step_costs(const plan::Plan& plan) {
  const cluster::Topology topology(plan.cluster);
  std::vector<StepCosts> costs;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const plan::Stage& stage = plan.stages[s];
    costs.push_back({.forward = stage.forward_ns,
                     .input = saturating_add(stage.backward_ns - stage.backward_weight_ns,
                                             stage.recompute ? stage.forward_ns : 0),
                     .weight = saturating_add(stage.backward_weight_ns, stage.accumulate_ns),
                     .message = s + 1 < plan.stages.size() ? message_ns(plan, topology, s) : 0});
  }
  return costs;
}

}  // namespace

ScheduleShape shape_of(const plan::Plan& plan, int64_t mini_batches) {
  ScheduleShape shape{.replicas = plan.replicas(),
                      .micro_batches = saturating_mul(mini_batches, plan.micro_batches),
                      .accumulate = plan.micro_batches,
                      .policy = plan.weights.empty() ? default_policy(plan.strategy)
                                                     : plan::parse_weight_policy(plan.weights),
                      .worker_of_replica = plan.worker_of_replica,
                      .slack = plan.slack};
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    if (!plan.stages[s].recompute) continue;
    shape.recompute.resize(plan.stages.size());
    shape.recompute[s] = true;
  }
  if (traits(plan.strategy).takes_keep) {
    for (const plan::Stage& stage : plan.stages) shape.keep.push_back(stage.keep);
    shape.costs = step_costs(plan);
    shape.repeats = true;
  }
  return shape;
}

}  // namespace penstock::schedule
