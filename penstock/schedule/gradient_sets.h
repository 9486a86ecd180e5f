// How many sets of gradients a replica keeps while those of a mini-batch are added up
// (docs/weights.md, "What results depend on").
#pragma once

#include <algorithm>
#include <cstdint>

#include "penstock/util/arithmetic.h"

namespace penstock::schedule {

/// At most, of a stage with so many replicas when `groups` gradient groups are summed apart and a
/// mini-batch has `accumulate` micro-batches; 0 groups: one per replica. At least 1.
inline int64_t gradient_sets(int64_t groups, int64_t replicas, int64_t accumulate) {
  const int64_t own = groups > replicas ? ceil_div(groups, replicas) : 1;
  // One replica holds all groups: with a micro-batch each, every one joins the sum at once.
  if (own == 1 || (replicas == 1 && accumulate <= groups)) return 1;
  return std::clamp<int64_t>(ceil_div(accumulate, replicas), 1, own);
}

}  // namespace penstock::schedule
