// What a worker's failure means, in words. Internal to runtime.
#pragma once

#include <exception>

#include "penstock/runtime/run.h"
#include "penstock/schedule/action.h"

namespace penstock::runtime {

/// What the exception that is being handled means, met by the worker in that action (null: before
/// the first): "worker 1 (stage 1) failed in the forward pass of micro-batch 3 (1F3@3): ...". Of a
/// timeout and an internal error, the exception itself.
std::exception_ptr failure_of(WorkerId worker, const Run& run, const WorkerDevice& device,
                              const schedule::Action* action);

}  // namespace penstock::runtime
