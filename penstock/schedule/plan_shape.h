// The schedule that a plan asks for.
#pragma once

#include <vector>

#include "penstock/plan/plan.h"
#include "penstock/schedule/schedule.h"

namespace penstock::schedule {

/// Replicas, worker_of_replica, slack, recomputation, micro-batches and weight policy of the plan
/// and, for a kind that makes its order from them, what it keeps and costs, over `mini_batches`
/// optimiser steps; saturates. Throws ConfigError for an unknown policy.
/// Of the plan's stages as whole ones, also where teams run them: generate() takes it, or
/// with_teams().
ScheduleShape shape_of(const plan::Plan& plan, int64_t mini_batches);
/// The same with each member of the plan's teams as a stage (teams.h); generate() takes this, too.
ScheduleShape member_shape_of(const plan::Plan& plan, int64_t mini_batches);
/// The plan's links, between the stages of member_shape_of(). Throws ConfigError for a link to a
/// stage that does not exist where there are teams.
std::vector<StageLink> links_of(const plan::Plan& plan);

}  // namespace penstock::schedule
