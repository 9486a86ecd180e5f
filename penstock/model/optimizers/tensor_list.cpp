#include "penstock/model/optimizers/tensor_list.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sqrt.h>

namespace penstock::model::detail {
namespace {

void scale(TensorList& a, double factor) {
  if (factor != 1) at::_foreach_mul_(a.tensors, factor);
}

}  // namespace

TensorList plus(const TensorList& a, const TensorList& b, double factor) {
  return factor == 0 ? a : TensorList{at::_foreach_add(a.tensors, b.tensors, factor)};
}

TensorList square_root(const TensorList& a) { return {at::_foreach_sqrt(a.tensors)}; }

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
