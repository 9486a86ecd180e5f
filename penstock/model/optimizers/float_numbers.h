// Floats as the numbers of an optimiser's formula (sgd.h, adam.h). tensor_list.h has the same
// functions for lists of tensors: a formula is written once, for both.
#pragma once

#include <cmath>

namespace penstock::model::detail {

/// a + factor * b
inline float plus(float a, float b, float factor) { return a + factor * b; }
/// share * a + other * b
inline float sum_of(float a, float share, float b, float other) { return share * a + other * b; }
inline float square_root(float a) { return std::sqrt(a); }
/// The root of a - b * b, of 0 where rounding has made that negative.
inline float root_of_difference(float a, float b) {
  const float difference = a - b * b;
  return std::sqrt(difference > 0 ? difference : 0.0F);
}
/// -1, 0 or 1
inline float sign_of(float a) { return static_cast<float>(a > 0) - static_cast<float>(a < 0); }
/// a = the larger of both
inline void take_larger(float& a, float b) { a = b > a ? b : a; }
/// a = factor * a + offset
inline void scale_and_shift(float& a, float factor, float offset) { a = a * factor + offset; }
/// a = factor * a + share * b
inline void scale_and_add(float& a, float factor, float b, float share) {
  a = factor * a + share * b;
}
/// a = factor * a + share * b * c
inline void scale_and_add_product(float& a, float factor, float b, float c, float share) {
  a = factor * a + share * b * c;
}
/// a = factor * a + share * b / c
inline void scale_and_add_quotient(float& a, float factor, float b, float c, float share) {
  a = factor * a + share * b / c;
}

}  // namespace penstock::model::detail
