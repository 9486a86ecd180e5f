// What Stage::keep says of a worker that holds several stages.
#pragma once

#include <cstdint>

namespace penstock::plan {

/// The smaller of two numbers of micro-batches to keep, where 0 says nothing.
constexpr int64_t stricter_keep(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return a + b;
  return a < b ? a : b;
}

}  // namespace penstock::plan
