// What the planner answers: a plan, or why there is none.
#pragma once

#include <optional>
#include <string>

#include "penstock/plan/plan.h"

namespace penstock::planner {

struct PlanResult {
  std::optional<plan::Plan> plan;
  /// Why there is none: names the binding stage and layer and the minimum memory required.
  std::string reason;
};

}  // namespace penstock::planner
