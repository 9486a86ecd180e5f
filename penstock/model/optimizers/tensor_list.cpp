#include "penstock/model/optimizers/tensor_list.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/sign.h>

namespace penstock::model::detail {
namespace {

void scale(TensorList& a, double factor) {
  if (factor != 1) at::_foreach_mul_(a.tensors, factor);
}

}  // namespace

TensorList plus(const TensorList& a, const TensorList& b, double factor) {
  return factor == 0 ? a : TensorList{at::_foreach_add(a.tensors, b.tensors, factor)};
}

TensorList sum_of(const TensorList& a, double share, const TensorList& b, double other) {
  TensorList sum{at::_foreach_mul(a.tensors, share)};
  at::_foreach_add_(sum.tensors, b.tensors, other);
  return sum;
}

TensorList square_root(const TensorList& a) { return {at::_foreach_sqrt(a.tensors)}; }

TensorList root_of_difference(const TensorList& a, const TensorList& b) {
  TensorList difference{at::_foreach_addcmul(a.tensors, b.tensors, b.tensors, -1)};
  for (at::Tensor& tensor : difference.tensors) tensor.clamp_min_(0);
  at::_foreach_sqrt_(difference.tensors);
  return difference;
}

TensorList sign_of(const TensorList& a) {
  TensorList signs;
  for (const at::Tensor& tensor : a.tensors) signs.tensors.push_back(at::sign(tensor));
  return signs;
}

// One operation per tensor: libtorch 1.13 has none in place for lists.
void take_larger(TensorList& a, const TensorList& b) {
  for (size_t i = 0; i < a.tensors.size(); ++i)
    at::maximum_out(a.tensors[i], a.tensors[i], b.tensors[i]);
}

void scale_and_shift(TensorList& a, double factor, double offset) {
  at::_foreach_mul_(a.tensors, factor);
  at::_foreach_add_(a.tensors, offset);
}

void scale_and_add(TensorList& a, double factor, const TensorList& b, double share) {
  scale(a, factor);
  at::_foreach_add_(a.tensors, b.tensors, share);
}

void scale_and_add_product(TensorList& a, double factor, const TensorList& b, const TensorList& c,
                           double share) {
  scale(a, factor);
  at::_foreach_addcmul_(a.tensors, b.tensors, c.tensors, share);
}

void scale_and_add_quotient(TensorList& a, double factor, const TensorList& b, const TensorList& c,
                            double share) {
  scale(a, factor);
  at::_foreach_addcdiv_(a.tensors, b.tensors, c.tensors, share);
}

}  // namespace penstock::model::detail
