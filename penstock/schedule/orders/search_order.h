// The order that a problem's costs ask for: the best of given orders and of many greedy ones, then
// improved until no local move helps or its effort is spent. Whoever may keep more starts from the
// best order of whoever may keep less, so more memory never makes an order slower. Deterministic,
// in integers: every rank makes the same.
//
//   Order order = search_order(problem, {published_order});
//
// Source: the idea is that of Zero Bubble's heuristic (Qi et al., ICLR 2024, 3.1); the moves are
// those of job-shop scheduling along the longest path (Nowicki and Smutnicki, Management Science
// 42(6), 1996). Differs: no integer program.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/schedule/orders/order_problem.h"

namespace penstock::schedule {

/// Steps that a search looks at, in all: about half a second. Fewer where an order has more than
/// 3,000 and messages share links, which takes longer. Of more than a million steps it only
/// compares a few orders, for what it may keep alone.
inline constexpr int64_t kSearchSteps = 30'000'000;

/// `known`: orders to start from; those that keep too much or are stuck count for nothing. Throws
/// InternalError when most_kept is too small for a worker.
Order search_order(const OrderProblem& problem, const std::vector<Order>& known = {},
                   int64_t effort = kSearchSteps);

}  // namespace penstock::schedule
