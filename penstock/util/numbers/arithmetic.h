// Integer arithmetic on counts and sizes that come from input: it never wraps.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

namespace penstock {

/// a + b, or nothing on overflow.
constexpr std::optional<int64_t> checked_add(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
  return result;
}

/// a * b, or nothing on overflow.
constexpr std::optional<int64_t> checked_mul(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
  return result;
}

/// a + b clamped to the range of int64_t; for times and sizes where the largest value is a good
/// answer to an overflow.
constexpr int64_t saturating_add(int64_t a, int64_t b) {
  if (const auto sum = checked_add(a, b)) return *sum;
  return a > 0 ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min();
}

/// a * b, clamped in the same way.
constexpr int64_t saturating_mul(int64_t a, int64_t b) {
  if (const auto product = checked_mul(a, b)) return *product;
  return (a > 0) == (b > 0) ? std::numeric_limits<int64_t>::max()
                            : std::numeric_limits<int64_t>::min();
}

/// ceil(a / b) for a >= 0, b > 0.
constexpr int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

/// ceil(a * b / c) for a, b >= 0, c > 0; saturates.
constexpr int64_t ceil_mul_div(int64_t a, int64_t b, int64_t c) {
  __extension__ using Wide = __int128;
  const Wide quotient = (static_cast<Wide>(a) * b + c - 1) / c;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  return quotient > kMost ? kMost : static_cast<int64_t>(quotient);
}

}  // namespace penstock
