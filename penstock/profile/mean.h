// Several measurements of one model, made at the same time on the ranks of a job, as one profile.
//
//   const Profile profile = mean_of(profiles);
//   const double speed = speed_of(profiles[1], profile);  // 0.5: takes twice the time
#pragma once

#include <vector>

#include "penstock/profile/profile.h"

namespace penstock::profile {

/// Times, and how fast gradients are summed, are means; the device names all that differ; the bytes
/// kept for backward are the most that any has. Throws ConfigError when there is none, or when they
/// are not of the same layers with the same sizes and micro-batches.
Profile mean_of(const std::vector<Profile>& profiles);

/// Time of the forward and backward passes of `reference` over that of `profile`; 1 where one of
/// them takes none.
double speed_of(const Profile& profile, const Profile& reference);

}  // namespace penstock::profile
