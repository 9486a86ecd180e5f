#include "penstock/options/check_profile.h"

#include <fmt/format.h>

#include "penstock/util/error.h"

namespace penstock::options {

void check_precision(const profile::Profile& profile, Precision wanted, const std::string& path) {
  if (profile.precision == wanted) return;
  throw ConfigError(fmt::format(
      "{} was measured in {}, --precision is {}: expected a profile of that precision (penstock "
      "profile --precision {})",
      path, to_string(profile.precision), to_string(wanted), to_string(wanted)));
}

}  // namespace penstock::options
