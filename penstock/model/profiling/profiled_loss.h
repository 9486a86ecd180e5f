#pragma once

#include <ATen/core/Tensor.h>

#include "penstock/model/loss.h"

namespace penstock::model {

/// The loss of the model's first output, and targets for a micro-batch of it.
struct ProfiledLoss {
  Loss loss;
  at::Tensor targets;
};

}  // namespace penstock::model
