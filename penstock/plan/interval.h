// Between which throughputs a run is expected to lie: what is predicted, and how sure that is.
//
//   const std::optional<Interval> interval = throughput_interval(plan, 1050);
//   if (interval) fmt::print("{}", interval->text());  // "980 to 1,120"
//
// The half width adds two independent errors: twice the standard error of the profile's mean, which
// the profiler measures between stretches of its passes (Plan::compute_error), and what a run does
// that the simulator does not know (kModelError; docs/lab/performance.md says how many runs lay
// within). Pure; thread-safe.
#pragma once

#include <optional>
#include <string>

#include "penstock/plan/plan.h"

namespace penstock::plan {

struct Interval {
  double low = 0;  ///< samples per second
  double high = 0;

  bool holds(double samples_per_s) const { return low <= samples_per_s && samples_per_s <= high; }
  /// "980 to 1,120"
  std::string text() const;
  bool operator==(const Interval&) const = default;
};

/// Share of the prediction by which runs may differ from it although the profile is right. A
/// choice: on a machine that others share, runs of two workers differ by more
/// (docs/lab/performance.md).
inline constexpr double kModelError = 0.10;

/// Around a throughput predicted with the plan's costs. `varied`: the share of it that is left
/// where computations vary as much as the plan's (Plan::compute_spread), at most 1; it lowers the
/// lower end. Nothing where it is not known how well the costs are known: from profiles that were
/// not measured, or by versions that did not say.
std::optional<Interval> throughput_interval(const Plan& plan, double samples_per_s,
                                            double varied = 1);

}  // namespace penstock::plan
