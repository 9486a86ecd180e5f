// Memory of the host from which GPUs copy without blocking anyone (pinned memory).
#pragma once

#include "penstock/model/layer.h"

namespace penstock::model {

/// An uninitialised tensor in such memory; any memory where there is no GPU. Thread-safe, as below.
at::Tensor empty_for_transfer(const Shape& sizes, at::ScalarType type);

/// The tensors in such memory: copies where they are elsewhere.
Tensors staged_for_transfer(Tensors tensors);

}  // namespace penstock::model
