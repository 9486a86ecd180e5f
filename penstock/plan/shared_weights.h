// Whether a plan's stages hold copies of the same weights (graph::WeightTie): then their gradients
// have to be added up across stages, which only the weight policy flush does.
#pragma once

#include "penstock/plan/plan.h"

namespace penstock::plan {

/// Whether a weight is used by layers of different stages. Throws as stage_of_layer().
bool stages_share_weights(const Plan& plan, const graph::ModelGraph& graph);

}  // namespace penstock::plan
