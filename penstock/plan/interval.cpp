#include "penstock/plan/interval.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace penstock::plan {

std::string Interval::text() const {
  return fmt::format("{} to {}", rate_text(low), rate_text(high));
}

std::optional<Interval> throughput_interval(const Plan& plan, double samples_per_s, double varied) {
  if (!(plan.compute_error > 0) || !(samples_per_s > 0)) return std::nullopt;
  const double half = std::hypot(2 * plan.compute_error, kModelError);
  return Interval{samples_per_s * std::min(varied, 1.0) * std::max(0.0, 1 - half),
                  samples_per_s * (1 + half)};
}

std::string rate_text(double samples_per_s) {
  if (!(std::abs(samples_per_s) < 1e15)) return fmt::format("{:.3g}", samples_per_s);
  if (samples_per_s < 100) return fmt::format("{:.4g}", samples_per_s);
  std::string digits = fmt::format("{:.0f}", samples_per_s);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

}  // namespace penstock::plan
