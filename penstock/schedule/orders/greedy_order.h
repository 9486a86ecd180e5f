// An order made by letting the pipeline run: whenever a worker is free it takes what is there,
// gradients first, then forwards as far as it may keep them, and fills its waiting time with W.
// Source: the heuristic of Zero Bubble (Qi et al., ICLR 2024, 3.1) and of its successor for two
// stages per worker (NeurIPS 2024). Differs: event by event instead of stage by stage, any times,
// links and replicas.
#pragma once

#include <cstdint>
#include <limits>

#include "penstock/schedule/orders/kept_range.h"
#include "penstock/schedule/orders/order_problem.h"

namespace penstock::schedule {

struct GreedyRules {
  /// Forwards ahead of the gradients at most, per stage after this one, in hundredths: 100 is
  /// 1F1B's warm-up, 200 that of zb-h2.
  int64_t lead_percent = 100;
  /// A worker waits for a gradient or a forward that arrives within this share of its W.
  int64_t patience_percent = 0;
  /// The share of what a worker may keep that each of its stages leaves to its later ones; at
  /// least 1 micro-batch per later stage.
  int64_t reserve_percent = 0;
  /// A worker that may keep no more runs W before I.
  bool free_memory_first = false;
};

/// Complete and never stuck; empty when all repetitions cannot end before `bound`. `range`: takes
/// in which other limits, most_kept, give the same order. O(steps log workers).
Order greedy_order(const OrderProblem& problem, const GreedyRules& rules,
                   int64_t bound = std::numeric_limits<int64_t>::max(), KeptRange* range = nullptr);

}  // namespace penstock::schedule
