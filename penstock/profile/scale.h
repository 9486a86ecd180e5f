// A profile for another micro-batch size than the one that was measured: an estimate.
//
//   Profile larger = scaled_to(profile, 64);
//   make_plan(larger, cluster, {});
#pragma once

#include <cstdint>

#include "penstock/profile/profile.h"

namespace penstock::profile {

/// The profile with micro-batches of `batch_size` samples (at least 1). Times of forward and
/// backward passes, outputs and stashes are scaled in proportion; weights, their optimiser step and
/// the adding of their gradients do not depend on the samples and stay. A profile that does not say
/// its batch size counts as one of single samples. How well a pass is known is not known of another
/// size. Saturates.
Profile scaled_to(const Profile& profile, int64_t batch_size);

}  // namespace penstock::profile
