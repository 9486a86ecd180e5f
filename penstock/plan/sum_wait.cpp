#include "penstock/plan/sum_wait.h"

#include <algorithm>

#include "penstock/plan/weight_policy.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::plan {

int64_t sum_wait_ns(const Stage& stage, SumsAreTaken taken) {
  if (stage.buckets.empty()) return stage.sync_ns;
  int64_t wire_ns = stage.sync_latency_ns;
  int64_t server_ns = stage.sync_latency_ns;
  int64_t stepped_ns = 0;
  int64_t processor_ns = 0;
  int64_t wait_ns = 0;
  for (const GradientBucket& bucket : stage.buckets) {
    wire_ns = saturating_add(wire_ns, bucket.wire_ns);
    server_ns = saturating_add(server_ns, bucket.server_ns);
    processor_ns = saturating_add(processor_ns, bucket.processor_ns);
    int64_t hidden_ns = saturating_add(stage.backward_ns - bucket.backward_ns, processor_ns);
    if (taken == SumsAreTaken::ByLayers)
      hidden_ns = saturating_add(hidden_ns, saturating_add(bucket.forward_ns, stepped_ns));
    wait_ns = std::max(wait_ns, std::max(wire_ns, server_ns) - hidden_ns);
    stepped_ns = saturating_add(stepped_ns, bucket.step_ns);
  }
  return wait_ns;
}

int64_t sum_processor_ns(const Stage& stage) {
  int64_t sum_ns = 0;
  for (const GradientBucket& bucket : stage.buckets)
    sum_ns = saturating_add(sum_ns, bucket.processor_ns);
  return sum_ns;
}

int64_t sum_wait_ns(const Plan& plan, const Stage& stage, bool global_norm) {
  const bool waits = stage.waits_for_sums || global_norm || backward_reads_newest(plan.weights);
  return sum_wait_ns(stage, waits ? SumsAreTaken::InSync : SumsAreTaken::ByLayers);
}

}  // namespace penstock::plan
