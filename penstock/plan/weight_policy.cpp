#include "penstock/plan/weight_policy.h"

#include <fmt/format.h>

#include <algorithm>

#include "penstock/util/error.h"

namespace penstock::plan {

std::string_view to_string(WeightPolicy policy) {
  switch (policy) {
    case WeightPolicy::Flush:
      return "flush";
    case WeightPolicy::Stash:
      return "stash";
    case WeightPolicy::VerticalSync:
      return "vertical-sync";
    case WeightPolicy::TwoBuffered:
      return "2bw";
    case WeightPolicy::Latest:
      return "latest";
    case WeightPolicy::Current:
      return "current";
  }
  return "?";
}

bool backward_reads_newest(std::string_view name) {
  return std::any_of(kWeightPolicies.begin(), kWeightPolicies.end(), [&](WeightPolicy policy) {
    return backward_reads_newest(policy) && to_string(policy) == name;
  });
}

WeightPolicy parse_weight_policy(std::string_view name) {
  for (const WeightPolicy policy : kWeightPolicies) {
    if (to_string(policy) == name) return policy;
  }
  throw ConfigError(fmt::format(
      "unknown weight policy '{}', expected flush, stash, vertical-sync, 2bw, latest or "
      "current",
      name.substr(0, 40)));
}

}  // namespace penstock::plan
