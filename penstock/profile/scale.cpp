#include "penstock/profile/scale.h"

#include "penstock/util/check.h"
#include "penstock/util/numbers/rounding.h"

namespace penstock::profile {

Profile scaled_to(const Profile& profile, int64_t batch_size) {
  PENSTOCK_CHECK(batch_size >= 1, batch_size);
  Profile scaled = profile;
  const double factor =
      static_cast<double>(batch_size) / static_cast<double>(samples_per_micro_batch(profile));
  const auto scale = [factor](int64_t& value) {
    value = nearest(static_cast<double>(value) * factor);
  };
  for (LayerCost& cost : scaled.costs) {
    scale(cost.forward_ns);
    scale(cost.backward_ns);
    scale(cost.backward_weight_ns);
    scale(cost.loss_ns);
    scale(cost.forward_spread_ns);
    scale(cost.backward_spread_ns);
    scale(cost.stash_bytes);
    // The gradients of weights do not grow with the batch.
    const int64_t fixed = std::min(cost.weight_bytes, cost.working_bytes);
    cost.working_bytes -= fixed;
    scale(cost.working_bytes);
    cost.working_bytes += fixed;
    for (int64_t& bytes : cost.output_bytes) scale(bytes);
    scale(cost.team.sum_bytes);
    scale(cost.team.back_sum_bytes);
  }
  scale(scaled.pass.mean_ns);
  if (factor != 1) scaled.pass.error = 0;  // what proportion costs is not known
  scaled.batch_size = batch_size;
  return scaled;
}

}  // namespace penstock::profile
