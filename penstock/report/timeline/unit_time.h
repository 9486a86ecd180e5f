// A schedule's compute actions in unit time, for drawing when no costs are known. Internal.
#pragma once

#include <cstdint>

#include "penstock/schedule/schedule.h"
#include "penstock/schedule/timeline.h"

namespace penstock::report {

/// Runs the compute actions with F, I, W and R = 1, B = 2 time units, each worker in its own order:
/// F after the F of the stage before, B and I after their F and the B or I of the stage after, W
/// after its I, R after its F. Messages, syncs and steps take no time. Stops at `horizon` and where
/// the lists wait for ever. O(actions before the horizon * log).
schedule::Timeline unit_timeline(const schedule::Schedule& schedule, int64_t horizon);

}  // namespace penstock::report
