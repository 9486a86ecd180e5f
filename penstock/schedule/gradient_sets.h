// How many gradients a replica keeps while it accumulates those of a mini-batch (docs/weights.md,
// "What results depend on"), and how many layers make theirs together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "penstock/util/numbers/arithmetic.h"

namespace penstock::schedule {

/// Neighbours in a chain whose weights have no more bytes than this together give away their
/// gradients together: a layer with as many takes far longer than a call.
inline constexpr int64_t kGradientBytesTogether = 1 << 20;

/// The maximum per replica of a stage with this many replicas, when `gradient_groups` are
/// summed separately and a mini-batch has `accumulate` micro-batches; no groups: one per replica.
/// At least 1.
inline int64_t gradient_sets(std::optional<int64_t> gradient_groups, int64_t replicas,
                             int64_t accumulate) {
  const int64_t groups = gradient_groups.value_or(replicas);
  const int64_t own = groups > replicas ? ceil_div(groups, replicas) : 1;
  if (own == 1) return 1;
  // One replica holds all groups. Where each has at most one micro-batch and every mini-batch
  // begins with the lowest group that it has, each micro-batch joins the sum at once.
  if (replicas == 1 && groups % accumulate == 0) return 1;
  return std::clamp<int64_t>(ceil_div(accumulate, replicas), 1, own);
}

}  // namespace penstock::schedule
