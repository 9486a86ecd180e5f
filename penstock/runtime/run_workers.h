// The threads of a run: one per worker of this rank. Internal to runtime.
#pragma once

#include <memory>
#include <vector>

#include "penstock/runtime/stage_worker.h"

namespace penstock::runtime {

/// Runs every worker in a thread of its own and blocks until all have returned. A thread that
/// cannot be started is a failure of the run. Calls options.on_stuck when workers do not return
/// after a failure.
void run_workers(const std::vector<std::unique_ptr<StageWorker>>& workers, Fabric& fabric,
                 const RunOptions& options);

}  // namespace penstock::runtime
