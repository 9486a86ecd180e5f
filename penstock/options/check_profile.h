// Whether a profile in a file is one for what the options ask.
#pragma once

#include <string>

#include "penstock/profile/profile.h"
#include "penstock/util/numbers/precision.h"

namespace penstock::options {

/// Throws ConfigError when the profile of the file `path` was measured in another precision.
void check_precision(const profile::Profile& profile, Precision wanted, const std::string& path);

}  // namespace penstock::options
