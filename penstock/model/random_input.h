// Random samples of a model's input.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include "penstock/model/input_spec.h"

namespace penstock::model {

/// [batch_size, ...] numbers such as the model takes: of tables any row, of masks nothing is
/// hidden.
at::Tensor random_input(const InputSpec& input, int64_t batch_size, at::Generator& generator);

}  // namespace penstock::model
