// Makes the weights that passes read where a compensation moves them. Internal to runtime.
//
//   std::unique_ptr<MovedWeights> moved = make_moved_weights(context, sums);
#pragma once

#include <memory>

#include "penstock/runtime/moved_weights.h"
#include "penstock/runtime/stage_context.h"

namespace penstock::runtime {

class StageSums;

/// Of a stage for one run; keeps references. Null: passes of the stage read versions as they are.
std::unique_ptr<MovedWeights> make_moved_weights(const StageContext& context, StageSums& sums);

}  // namespace penstock::runtime
