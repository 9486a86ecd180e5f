// Where a training run begins, known before anything is measured: a checkpoint folder must not lose
// what it holds.
#pragma once

#include <cstdint>

#include "penstock/model/model.h"
#include "penstock/options/request.h"
#include "penstock/plan/plan.h"

namespace penstock::tool {

enum class Begin : uint8_t {
  Fresh,     ///< at step 0
  Resumed,   ///< at the newest checkpoint
  Finished,  ///< at the newest checkpoint, with nothing left to train
};

/// Looks into the folder of the checkpoints. Says on standard error when --resume finds no
/// checkpoint there, or nothing left to train. Throws ConfigError when the folder has a checkpoint
/// and
/// --resume is missing, CheckpointError when it cannot be resumed from.
Begin begin_run(const options::RunRequest& run, const model::Model& model);

/// The whole model on one worker, without costs: enough to evaluate it.
plan::Plan one_stage(const model::Model& model);

}  // namespace penstock::tool
