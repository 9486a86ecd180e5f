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
TensorList square_root(const TensorList& a);
// These write into the tensors of `a`.
void scale_and_shift(TensorList& a, double factor, double offset);
void scale_and_add(TensorList& a, double factor, const TensorList& b, double share);
void scale_and_add_product(TensorList& a, double factor, const TensorList& b, const TensorList& c,
                           double share);
void scale_and_add_quotient(TensorList& a, double factor, const TensorList& b, const TensorList& c,
                            double share);

}  // namespace penstock::model::detail
