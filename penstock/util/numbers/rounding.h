// Converts times and sizes from floating point to integers, clamped to the range of int64_t: a
// value beyond the range becomes the largest or smallest integer.
//
//   int64_t ns = nearest(1e9 * seconds);
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace penstock {

namespace detail {

/// Cuts off a fraction. NaN counts as too large.
inline int64_t clamped(double value) {
  constexpr double kEnd = 0x1p63;
  if (!(value < kEnd)) return std::numeric_limits<int64_t>::max();
  return value >= -kEnd ? static_cast<int64_t>(value) : std::numeric_limits<int64_t>::min();
}

}  // namespace detail

/// The nearest integer, halves away from zero.
inline int64_t nearest(double value) { return detail::clamped(std::round(value)); }
inline int64_t rounded_up(double value) { return detail::clamped(std::ceil(value)); }
/// Towards zero.
inline int64_t rounded_down(double value) { return detail::clamped(value); }

}  // namespace penstock
