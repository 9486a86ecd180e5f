// The state of layers as pipelines have it (optimiser states by number) and as checkpoints have it
// (by name).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "penstock/runtime/pipeline.h"
#include "penstock/train/checkpoint/checkpoint.h"

namespace penstock::train {

/// `states`: Pipeline::state_names(). Throws ConfigError when the checkpoint's layer has other
/// states than these, which the optimiser of that name keeps.
runtime::LayerSnapshot to_snapshot(const LayerState& state, const std::vector<std::string>& states,
                                   std::string_view name);
LayerState to_state(runtime::LayerSnapshot layer, const std::vector<std::string>& states);

}  // namespace penstock::train
