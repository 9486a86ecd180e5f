// The state of layers, brought to every rank. Internal to train.
#pragma once

#include <vector>

#include "penstock/runtime/pipeline.h"
#include "penstock/runtime/ranks.h"

namespace penstock::train {

/// Fills the layers that other ranks have with copies of their state. Collective; nothing happens
/// without ranks. Throws TimeoutError.
void share_layers(const runtime::Ranks& ranks, std::vector<runtime::LayerSnapshot>& layers);

}  // namespace penstock::train
