// What a model takes: its inputs by name.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>

#include "penstock/model/layer.h"

namespace penstock::model {

struct InputSpec {
  std::string name;
  Shape shape;                       ///< of one sample
  at::ScalarType type = at::kFloat;  ///< of what the model is called with
  /// Whole numbers that look up rows of a table: they lie in [0, values). 0: any number.
  int64_t values = 0;
};

}  // namespace penstock::model
