// Which of a stage's gradients leave together, and when. Internal to the planner.
#pragma once

#include <vector>

#include "penstock/plan/plan.h"
#include "penstock/planner/pricing/context.h"

namespace penstock::planner {

/// Fills in the buckets of a stage of these layers whose passes and weights are known, on devices
/// of this speed; none where its replicas share no more than a unit of `level` that is one process.
/// O(layers log layers).
void add_buckets(const Context& context, std::vector<LayerId> layers, int level, double speed,
                 plan::Stage& stage);

}  // namespace penstock::planner
