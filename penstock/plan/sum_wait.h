// What the workers wait for sums of gradients that travel while they compute.
//
//   int64_t ns = sum_wait_ns(plan.stages[s], SumsAreTaken::ByLayers);  // per optimiser step
#pragma once

#include <cstdint>

#include "penstock/plan/plan.h"

namespace penstock::plan {

enum class SumsAreTaken : uint8_t {
  ByLayers,  ///< by the next forward pass, each when it comes to the bucket's first layer
  InSync,    ///< all by SYNC (norms, the policy `latest`, weights that a stage uses twice)
};

/// How long a replica waits per step, when its next forward pass follows its last backward pass at
/// once and all replicas compute at the same time. Without buckets: sync_ns.
///
/// Bucket i needs d_i on the wire. Its gradients are made when the backward pass has the layers
/// before it still to go, e_i, and its sum is needed when the forward pass has done these layers,
/// f_i, and stepped the buckets before, s_i. More urgent buckets overtake, so buckets 0 to i need
/// d_0 + ... + d_i after the least urgent of them is made:
///
///     wait = max(0, max over i of (latency + d_0 + ... + d_i - e_i - f_i - s_i - p_i))
///
/// where SYNC takes the sums, f and s are 0. p_i is the processor time of the sums of buckets 0 to
/// i (GradientBucket::processor_ns), which the replica spends in any case: a wait for bucket i is
/// over so much earlier. The same for the servers' wire. So what can never be
/// hidden is the first bucket's sum, and with many buckets the time is about
/// max(computation, communication). Simulated data parallelism takes exactly this long
/// (SumWaitProperty); each idle moment between the two passes hides more. O(buckets). Saturates.
int64_t sum_wait_ns(const Stage& stage, SumsAreTaken taken);

/// The processor time that a replica spends on sums per step, beside its computation and the wait
/// above: that of all buckets. Saturates.
int64_t sum_processor_ns(const Stage& stage);

/// The same for a stage of the plan as its weight policy takes sums. `global_norm`: SYNC takes all,
/// since gradients are clipped, which plans do not say.
int64_t sum_wait_ns(const Plan& plan, const Stage& stage, bool global_norm = false);

}  // namespace penstock::plan
