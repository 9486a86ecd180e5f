// Peak memory of every worker of a schedule; internal to the simulator.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/schedule/schedule.h"
#include "penstock/simulate/simulator.h"

namespace penstock::simulate::detail {

/// Largest sum, at any moment of each worker's list, of: weight versions held, one gradient buffer, the optimiser's state, and the stashes
/// of micro-batches between their F and their B. A worker without any B keeps weights alone. It does not depend on times. O(actions).
/// Saturates.
std::vector<int64_t> peak_memory_bytes(const schedule::Schedule& schedule, const Costs& costs);

}  // namespace penstock::simulate::detail
