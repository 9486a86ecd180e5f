// What a priced plan will do: simulated, or estimated where it is too large for that. Internal to the planner.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/planner/pricing.h"

namespace penstock::planner {

/// Fills in throughput, latency, idle share and the stages' memory of a plan whose stages, links and bottleneck are known. `cut_bytes`
/// cross the boundaries. Adds a note to plans that are estimated.
void predict(const Context& context, const Split& split, const std::vector<int64_t>& cut_bytes, plan::Plan& plan);

}  // namespace penstock::planner
