#include "penstock/plan/interval.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "penstock/util/text/format_rate.h"

namespace penstock::plan {

std::string Interval::text() const {
  return fmt::format("{} to {}", format_rate(low), format_rate(high));
}

std::optional<Interval> throughput_interval(const Plan& plan, double samples_per_s, double varied) {
  if (!(plan.prediction.compute_error > 0) || !(samples_per_s > 0)) return std::nullopt;
  const double half = std::hypot(2 * plan.prediction.compute_error, kModelError);
  return Interval{samples_per_s * std::min(varied, 1.0) * std::max(0.0, 1 - half),
                  samples_per_s * (1 + half)};
}

}  // namespace penstock::plan
