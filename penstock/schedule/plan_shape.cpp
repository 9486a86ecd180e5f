#include "penstock/schedule/plan_shape.h"

#include "penstock/util/arithmetic.h"

namespace penstock::schedule {

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
  return shape;
}

}  // namespace penstock::schedule
