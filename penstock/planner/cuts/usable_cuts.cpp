#include "penstock/planner/cuts/usable_cuts.h"

#include <algorithm>

namespace penstock::planner {

bool UsableCuts::may_split(int64_t least_ns, int64_t most_ns) const {
  const auto m = std::lower_bound(most_ns_.begin(), most_ns_.end(), static_cast<double>(least_ns));
  return m != most_ns_.end() &&
         least_ns_[static_cast<size_t>(m - most_ns_.begin())] <= static_cast<double>(most_ns);
}

bool UsableCuts::passes(int64_t compute_ns, int64_t bytes) const {
  if (tiers_.empty() || bytes > tiers_.back().most_bytes) return false;
  return meets(tiers_.back().promising, compute_ns, compute_ns) &&
         may_split(compute_ns, compute_ns);
}

}  // namespace penstock::planner
