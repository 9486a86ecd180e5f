// What the other ranks have measured, brought to rank 0. Internal to train.
#pragma once

#include "penstock/runtime/ranks.h"
#include "penstock/train/train_result.h"

namespace penstock::train {

/// Completes rank 0's result: one summary per rank, the lanes of all workers, their peak versions,
/// the idle share over all workers, the largest peak memory, and the weights if they are kept.
/// Elsewhere the result stays as it is. Collective; ranks.world must not be null.
void collect_on_first(const runtime::Ranks& ranks, TrainResult& result);

}  // namespace penstock::train
