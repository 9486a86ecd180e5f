// The cost models' constructors, one file each or few. Internal to the planner.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>

#include "penstock/planner/cost/cost_model.h"

namespace penstock::planner {

std::unique_ptr<CostModel> make_penstock_model(const cluster::Cluster& cluster, GradientSync sync,
                                               SyncOverlap overlap, FloatType precision);
std::unique_ptr<CostModel> make_sosp2019_model(const cluster::Cluster& cluster, GradientSync sync,
                                               SyncOverlap overlap, FloatType precision);
std::unique_ptr<CostModel> make_released_model(const cluster::Cluster& cluster, GradientSync sync,
                                               SyncOverlap overlap, FloatType precision);
std::unique_ptr<CostModel> make_report2018_model(const cluster::Cluster& cluster, GradientSync sync,
                                                 SyncOverlap overlap, FloatType precision);

/// ceil(compute / limit) within [least, most]: a lower bound on the replicas under every model,
/// lowered by one against rounding.
inline int compute_bound(double compute_ns, double limit_ns, int least, int most) {
  if (compute_ns == 0) return least;
  const double bound = std::ceil(compute_ns / limit_ns) - 1;
  if (!(bound < most)) return most;
  return std::max(least, static_cast<int>(bound));
}

/// The first count in [least, most] whose time is within the limit, or 0, for times that never rise
/// with the count. Looks around `guess`, of which nothing is assumed. O(log |result - guess|)
/// evaluations.
template <class Time>
int first_within(const Time& time, double limit_ns, int least, int most, double guess) {
  if (least > most) return 0;
  int fits = guess > least ? (guess < most ? static_cast<int>(guess) : most) : least;
  int fails = least - 1;
  if (time(fits) <= limit_ns) {
    for (int64_t step = 1; fits > least; step *= 2) {
      const int probe = static_cast<int>(std::max<int64_t>(least, fits - step));
      if (time(probe) > limit_ns) {
        fails = probe;
        break;
      }
      fits = probe;
    }
  } else {
    for (int64_t step = 1;; step *= 2) {
      if (fits == most) return 0;
      fails = fits;
      fits = static_cast<int>(std::min<int64_t>(most, fits + step));
      if (time(fits) <= limit_ns) break;
    }
  }
  while (fits - fails > 1) {
    const int middle = fails + (fits - fails) / 2;
    (time(middle) <= limit_ns ? fits : fails) = middle;
  }
  return fits;
}

/// Where a/m + d(m-1)/m^2 = limit for the larger m, or 0 where it is below the limit everywhere.
inline double replicas_at(double a, double d, double limit_ns) {
  const double sum = a + d;
  const double discriminant = sum * sum - 4 * limit_ns * d;
  return discriminant >= 0 ? (sum + std::sqrt(discriminant)) / (2 * limit_ns) : 0;
}

}  // namespace penstock::planner
