// The state of layers as pipelines have it (optimiser states by number) and as checkpoints have it
// (by name).
#pragma once

#include <string_view>
#include <vector>

#include "penstock/model/optimizer.h"
#include "penstock/runtime/pipeline.h"
#include "penstock/train/checkpoint/checkpoint.h"

namespace penstock::train {

/// Throws ConfigError when the checkpoint's layer has other optimiser states than the optimiser of
/// that name keeps.
runtime::LayerSnapshot to_snapshot(const LayerState& state, const model::Optimizer& optimizer,
                                   std::string_view name);
LayerState to_state(runtime::LayerSnapshot layer, const model::Optimizer& optimizer);

}  // namespace penstock::train
