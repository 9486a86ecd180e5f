// The reference for schedules that delay weights: the same training in one thread, with the same
// delays. It keeps old versions of every weight and looks up which one each micro-batch reads; it
// has no workers, stores, messages or order of actions.
//
//   // replay.losses[t] against TrainResult::losses[t]
//   Replay replay = replay_serially(model, data, options);
#pragma once

#include <vector>

#include "penstock/model/model.h"
#include "penstock/train/data/dataset.h"
#include "penstock/train/trainer.h"

namespace penstock::train {

struct Replay {
  std::vector<double> losses;  ///< mean of every mini-batch, in order
  /// Before clipping; empty unless options.max_grad_norm is set.
  std::vector<double> grad_norms;
  std::vector<model::Tensors> weights;  ///< per layer, after the last step
};

/// Computes the same as train() with these options from fresh weights, up to rounding, for every
/// strategy and policy of the plan: every stage reads the weight versions that the plan's lowered
/// schedule names. Under `diloco` every copy of the pipeline makes its steps in turn, and the outer
/// ones follow; under `powersgd` replicas' gradients are summed as factors. Without checkpoints,
/// evaluation or observers. Blocks for about as long as one worker needs; memory: the largest delay
/// + 1 copies of the weights. Throws ConfigError like train(), RuntimeError when a layer fails or
/// options.stop is set (checked before every mini-batch).
Replay replay_serially(const model::Model& model, const DataSplit& data,
                       const TrainOptions& options);

}  // namespace penstock::train
