// Schedules from a strategy and a shape. What sets the strategies apart stands in their rows of
// traits (plan/strategy.h), their lists in one generator each (generators/), whose header draws
// its grid and cites its source.
//
//   Schedule s = generate(Strategy::GPipe, {.replicas = {1, 1, 1, 1}, .micro_batches = 8,
//       .accumulate = 8});
#pragma once

#include <string>
#include <string_view>

#include "penstock/plan/strategy.h"
#include "penstock/schedule/schedule.h"

namespace penstock::schedule {

/// Micro-batches per step when none is asked for: the shape's micro_batches for strategies with a
/// flush, the least common multiple of the replica counts for 1f1b, and for 2bw the smallest
/// multiple of that which reaches the depth.
int64_t default_accumulate(Strategy strategy, const ScheduleShape& shape);

/// The shape with the worker_of_replica that the strategy expects (placement.h), `chunks` stages
/// per worker. Where workers hold several stages, replicas must be alike (copies of the pipeline),
/// and even for chimera, whose two directions are replicas; otherwise the shape is returned as it
/// is. Throws ConfigError saying what the strategy needs.
ScheduleShape with_placement(Strategy strategy, ScheduleShape shape, int chunks);
/// The same with the strategy's usual number of stages per worker.
ScheduleShape with_placement(Strategy strategy, ScheduleShape shape);

/// Throws ConfigError when the shape is invalid (validate()) or the strategy cannot run it: it has
/// no schedule of its own, dp with 2 stages, serial with 2 workers, an unsupported policy, slack
/// without eager-1f1b, worker_of_replica that are not with_placement()'s up to the workers'
/// numbers. O(replicas).
void check_runs(Strategy strategy, const ScheduleShape& shape, int64_t max_actions = kMaxActions);

/// Compute actions only, without R. Throws ConfigError as check_runs(). O(actions + workers).
Schedule generate(Strategy strategy, const ScheduleShape& shape);

}  // namespace penstock::schedule
