// The schedule that a plan asks for.
#pragma once

#include "penstock/plan/plan.h"
#include "penstock/schedule/schedule.h"

namespace penstock::schedule {

/// Replicas, worker_of_replica, slack, recomputation, micro-batches and weight policy of the plan
/// and, for a kind that makes its order from them, what it keeps and costs, over `mini_batches`
/// optimiser steps; saturates. Throws ConfigError for an unknown policy.
ScheduleShape shape_of(const plan::Plan& plan, int64_t mini_batches);

}  // namespace penstock::schedule
