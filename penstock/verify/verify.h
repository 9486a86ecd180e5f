// Proves a schedule sound before it runs, against a model of the transport.
//
//   for (const Violation& v : verify(schedule, {.credits = 1})) std::cerr << v.message << '\n';
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "penstock/schedule/schedule.h"
#include "penstock/verify/values.h"

namespace penstock::verify {

/// Empty when the schedule is sound. A schedule that is not lowered is checked by the rules that
/// apply to compute actions (complete, order, team, deadlock through data dependencies). Linear in
/// the number of actions. Pure; thread-safe. Throws ConfigError for negative credits.
std::vector<Violation> verify(const schedule::Schedule& schedule, const Options& options = {});

/// The minimum number of credits per channel without a deadlock, or -1 when every number deadlocks.
/// Binary search over verify's deadlock rule.
int64_t min_credits(const schedule::Schedule& schedule);

/// Nothing when every worker reaches the end of its list, or when the schedule's actions are on the
/// wrong workers or outside its shape, so that it cannot be run (verify() reports them). Throws
/// ConfigError for negative credits. Linear in the number of actions.
std::optional<Counterexample> find_deadlock(const schedule::Schedule& schedule,
                                            int64_t credits = 1);

/// By worker. All zero when the shape is invalid or the number of lists differs from the number of
/// its workers. O(actions).
std::vector<WorkerPeaks> peaks(const schedule::Schedule& schedule, const Options& bytes = {});

}  // namespace penstock::verify
