// Says in plain words why a plan is as it is. Internal to the planner.
#pragma once

#include <string>
#include <vector>

#include "penstock/planner/pricing.h"

namespace penstock::planner {

/// What is true of any plan for this input: network levels flattened, batch size unknown, workers left idle, the slowest part.
std::vector<std::string> notes_on_plan(const Context& context, const plan::Plan& plan);

/// How the plan compares with the best plans of the other families: how much longer they take and why, and how their steps differ in
/// samples.
std::vector<std::string> notes_on_alternatives(const plan::Plan& plan, const std::vector<plan::Plan>& others);

/// "1x16-4" for long runs of equal stages; their number when even that is long.
std::string short_config(const plan::Plan& plan);

/// "fc6 .. fc8".
std::string layer_range(const std::vector<std::string>& layers);

}  // namespace penstock::planner
