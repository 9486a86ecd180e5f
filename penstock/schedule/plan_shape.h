// The schedule that a plan asks for.
#pragma once

#include "penstock/plan/plan.h"
#include "penstock/schedule/generate.h"

namespace penstock::schedule {

/// The plan's strategy. Throws ConfigError for an unknown one.
Kind kind_of(const plan::Plan& plan);
/// Replicas, worker_of_replica, slack, recomputation, micro-batches and weight policy of the plan
/// over `mini_batches` optimiser steps; saturates. Throws ConfigError for an unknown strategy or
/// policy.
ScheduleShape shape_of(const plan::Plan& plan, int64_t mini_batches);

}  // namespace penstock::schedule
