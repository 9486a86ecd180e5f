// Schedules from a strategy and a shape. The properties of each strategy are in its row of traits
// (plan/strategy.h). Each has one generator (generators/), whose header draws its grid and cites
// its source.
//
//   Schedule s = generate(Strategy::GPipe, {.replicas = {1, 1, 1, 1}, .micro_batches = 8,
//       .accumulate = 8});
#pragma once

#include <string>
#include <string_view>

#include "penstock/plan/strategy.h"
#include "penstock/schedule/schedule.h"

namespace penstock::schedule {

/// The default number of micro-batches per step: the shape's micro_batches for strategies with a
/// flush, the least common multiple of the replica counts for 1f1b, and for 2bw the smallest
/// multiple of that which reaches the depth.
int64_t default_accumulate(Strategy strategy, const ScheduleShape& shape);

/// The shape with the worker_of_replica that the strategy expects (placement.h), `chunks` stages
/// per worker. Where workers hold several stages, all stages must have the same number of replicas
/// (copies of the pipeline), an even one for dualpipe and chimera, whose two directions are
/// replicas. Where each worker holds one stage, returns the shape unchanged. Throws ConfigError
/// saying what the strategy needs.
ScheduleShape with_placement(Strategy strategy, ScheduleShape shape, int chunks);
/// The same with the strategy's default number of stages per worker.
ScheduleShape with_placement(Strategy strategy, ScheduleShape shape);

/// The shape with the strategy's own slack, where it has one.
ScheduleShape with_own_slack(Strategy strategy, ScheduleShape shape);

/// Throws ConfigError when the shape is invalid (validate()) or the strategy cannot run it: it has
/// no schedule of its own, dp with 2 stages, serial with 2 workers, an unsupported policy, slack
/// without eager-1f1b, a worker_of_replica that differs from with_placement()'s by more than the
/// workers' numbers. O(replicas).
void check_runs(Strategy strategy, const ScheduleShape& shape, int64_t max_actions = kMaxActions);

/// Compute actions only, without R. A shape with teams (teams.h) gets the lists of whole stages,
/// for each member. Throws ConfigError like check_runs(). O(actions + workers).
Schedule generate(Strategy strategy, const ScheduleShape& shape);

}  // namespace penstock::schedule
