// Where a training run begins, known before anything is measured: a checkpoint folder must not lose
// what it holds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/job/listener.h"
#include "penstock/model/model.h"
#include "penstock/options/request.h"

namespace penstock::job {

enum class Begin : uint8_t {
  Fresh,     ///< at step 0
  Resumed,   ///< at the newest checkpoint
  Finished,  ///< at the newest checkpoint, with nothing left to train
};

/// Looks into the folder of the checkpoints. Tells when a run that resumes finds no checkpoint
/// there, or nothing left to train. Throws ConfigError when the folder has a checkpoint and the run
/// does not resume, or resumes weights of other classes; CheckpointError when it cannot be resumed
/// from. `classes`: DataSplit::classes.
Begin begin_run(const options::RunRequest& run, const model::Model& model,
                const std::vector<std::string>& classes, const Listener& listener);

}  // namespace penstock::job
