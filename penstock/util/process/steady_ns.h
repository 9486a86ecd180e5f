// Now, in nanoseconds of a clock that only goes forward; differences have a meaning on one host.
#pragma once

#include <chrono>
#include <cstdint>

namespace penstock {

inline int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace penstock
