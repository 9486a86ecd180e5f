// Floats as the numbers of an optimiser's formula (sgd.h, adam.h). tensor_list.h has the same
// functions for lists of tensors: a formula is written once, for both.
#pragma once

#include <cmath>

namespace penstock::model::detail {

/// a + factor * b
inline float plus(float a, float b, float factor) { return a + factor * b; }
inline float square_root(float a) { return std::sqrt(a); }
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
