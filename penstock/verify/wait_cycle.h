// Who keeps whom from going on, after an execution that got stuck.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/verify/execution.h"

namespace penstock::verify {

/// Workers w0, w1, ... of a cycle in which each waits for the next and the last for w0; empty when there is none. The shortest one, unless
/// the search would take more than 5 million steps; then the shortest of those found until then, which may be none.
std::vector<WorkerId> shortest_wait_cycle(const Execution& execution, int32_t num_workers);

}  // namespace penstock::verify
