// Lists made from costs: each mini-batch is an order problem (orders/order_problem.h), solved by
// searching from published orders on.
#pragma once

#include <span>

#include "penstock/schedule/generators/generator.h"

namespace penstock::schedule {

/// `known`: generators whose orders fit the shape's placement, with B or with I and W.
/// `usual_keep`: where the shape has no `keep`. Solves a problem once for all mini-batches that
/// have it, and remembers the last few. Deterministic; thread-safe. Time: kSearchSteps
/// (orders/search_order.h) per problem, then O(actions).
WorkerLists cost_made_lists(const ScheduleShape& shape,
                            std::span<WorkerLists (*const)(const ScheduleShape&)> known,
                            int64_t usual_keep);

}  // namespace penstock::schedule
