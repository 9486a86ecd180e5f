// Copies of many tensors in as few operations as the device allows.
#pragma once

#include "penstock/model/layer.h"

namespace penstock::model {

/// to[i].copy_(from[i]), without autograd; sizes are equal. Undefined tensors, of either list, are
/// left out.
void copy_all(TensorSpan to, TensorSpan from);

/// The same numbers in memory of their own, dense in the same order; undefined ones stay so.
Tensors copies_of(TensorSpan tensors);

}  // namespace penstock::model
