// Measurements of one model with sequences of several lengths, as one profile.
//
//   const Profile profile = over_lengths({shorter, longer}, {{0.75, {{12}}}, {0.25, {{40}}}});
#pragma once

#include <vector>

#include "penstock/profile/lengths.h"
#include "penstock/profile/profile.h"

namespace penstock::profile {

/// One profile from those of the groups, in their order: times and sizes of outputs are means by
/// share; what layers keep and need is that of the group where it is most. The mean of a pass is
/// that of the groups with 5 % or more, and known as well as they are; its spread is that of all
/// their passes. Throws ConfigError as
/// validate(), and where the profiles are of other models or micro-batches.
Profile over_lengths(const std::vector<Profile>& profiles, const std::vector<LengthGroup>& lengths);

}  // namespace penstock::profile
