// How far a run of a plan may be from what is predicted: the simulator's part of plan/interval.h.
//
//   if (const auto interval = expected_interval(plan, prediction))
//     fmt::print("{} samples/s", interval->text());
#pragma once

#include <optional>

#include "penstock/plan/interval.h"
#include "penstock/plan/plan.h"

namespace penstock::simulate {

/// The share of the plan's throughput that is left where its computations vary: those of all stages
/// for one micro-batch by Plan::compute_spread, single ones by more, as if each stretch of time
/// varied on its own. Workers that wait for each other wait for the slower one. The mean over a few
/// runs of some steps, drawn by fixed seeds; of long steps fewer. 1 without a spread; nothing where
/// a single step has more than a million actions and sums, which would take too long. Pure; up to a
/// second, and as long as it takes to make the schedule.
std::optional<double> share_left_by_variation(const plan::Plan& plan);

/// Around `samples_per_s`, predicted for a run of the plan. Nothing where it is not known how well
/// the costs are known, or what their variation takes.
std::optional<plan::Interval> expected_interval(const plan::Plan& plan, double samples_per_s);

}  // namespace penstock::simulate
