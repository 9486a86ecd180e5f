// The number of micro-batches after which all replicas of every stage have processed the same
// number.
#pragma once

#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

#include "penstock/util/numbers/arithmetic.h"

namespace penstock {

/// The least common multiple of the counts, all at least 1; nothing when it is larger than `most`.
/// 1 if there are no counts.
inline std::optional<int64_t> common_multiple(const std::vector<int>& counts,
                                              int64_t most = INT64_MAX) {
  int64_t multiple = 1;
  for (const int64_t count : counts) {
    const std::optional<int64_t> next = checked_mul(multiple / std::gcd(multiple, count), count);
    if (!next || *next > most) return std::nullopt;
    multiple = *next;
  }
  return multiple;
}

}  // namespace penstock
