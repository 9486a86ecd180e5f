// Whether an order's messages need no more room than one per channel. The clock of orders lets
// every message leave at once, so that an order may look good and hold two workers in their sends.
//
//   if (!runs_with_one_credit(problem, order)) ...  // needs two or more
#pragma once

#include "penstock/schedule/orders/order_problem.h"

namespace penstock::schedule {

/// A worker receives directly before the step that needs it and sends directly after the step that
/// made it; a send waits while the message before it, of the same stage and direction to the same
/// worker, is not received. False where the lists cannot end so. O(steps).
bool runs_with_one_credit(const OrderProblem& problem, const Order& order);

}  // namespace penstock::schedule
