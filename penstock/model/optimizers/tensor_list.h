// Several tensors as the numbers of an optimiser's formula (float_numbers.h): each function is a
// few operations for all of them together.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace penstock::model::detail {

struct TensorList {
  std::vector<at::Tensor> tensors = {};
};

/// a + factor * b; `a` itself when the factor is 0.
TensorList plus(const TensorList& a, const TensorList& b, double factor);
/// share * a + other * b
TensorList sum_of(const TensorList& a, double share, const TensorList& b, double other);
TensorList square_root(const TensorList& a);
/// The roots of a - b * b, of 0 where rounding has made that negative.
TensorList root_of_difference(const TensorList& a, const TensorList& b);
/// -1, 0 or 1
TensorList sign_of(const TensorList& a);
// These write into the tensors of `a`.
/// a = the larger of both
void take_larger(TensorList& a, const TensorList& b);
void scale_and_shift(TensorList& a, double factor, double offset);
void scale_and_add(TensorList& a, double factor, const TensorList& b, double share);
void scale_and_add_product(TensorList& a, double factor, const TensorList& b, const TensorList& c,
                           double share);
void scale_and_add_quotient(TensorList& a, double factor, const TensorList& b, const TensorList& c,
                            double share);

}  // namespace penstock::model::detail
