// What the planner answers: a plan, or why there is none.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "penstock/plan/plan.h"
#include "penstock/planner/found_plans.h"

namespace penstock::planner {

struct PlanResult {
  std::optional<plan::Plan> plan;
  /// Why there is none: names the binding stage and layer and the minimum memory required.
  std::string reason;
  /// When the search had the split of `plan`, since it began; and how long it took in all. These
  /// and `improvements` are of a clock: nothing else depends on them.
  std::chrono::nanoseconds found_after{0};
  std::chrono::nanoseconds searched{0};
  /// The plans before it that might have been the answer, each faster than all before, and itself.
  std::vector<FoundPlan> improvements = {};
};

}  // namespace penstock::planner
