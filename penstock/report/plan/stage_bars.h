// A plan on its page as bars: what its stages and the links between them take, on one scale.
// Internal to the reports.
//
//   page += stage_bars(PlanView(plan));
#pragma once

#include <cstddef>
#include <string>

#include "penstock/report/plan/plan_view.h"

namespace penstock::report {

/// Of further stages the page's table says the times.
inline constexpr size_t kMostBars = 64;

/// HTML: for each of the first kMostBars stages, and each link from it, a bar of its time per
/// micro-batch in parts; beside it layers, workers and memory. The longest fills the width. Names
/// are escaped. O(stages + links).
std::string stage_bars(const PlanView& view);

}  // namespace penstock::report
