// Checks of costs; internal to the simulator.
#pragma once

#include "penstock/simulate/simulator.h"

namespace penstock::simulate::detail {

/// Throws ConfigError when the costs do not fit a schedule of `num_stages` stages or contain a
/// negative number.
void check_costs(const Costs& costs, int num_stages);

}  // namespace penstock::simulate::detail
