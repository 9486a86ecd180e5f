// Whether a pipeline can run a schedule with these options. Internal to runtime.
#pragma once

#include <vector>

#include "penstock/runtime/run_options.h"
#include "penstock/schedule/endless_schedule.h"
#include "penstock/schedule/schedule.h"

namespace penstock::runtime {

struct Stages;

/// Throws ConfigError saying what does not fit. `links`: Pipeline::links().
void check_run(const Stages& stages, const std::vector<schedule::StageLink>& links,
               const schedule::Schedule& schedule, const RunOptions& options);

/// The same for what only endless runs need.
void check_endless(const Stages& stages, const schedule::EndlessSchedule& schedule);

}  // namespace penstock::runtime
