// Arithmetic on the shape of one sample.
#pragma once

#include <cstdint>

#include "penstock/model/layer.h"

namespace penstock::train {

/// Numbers in one sample of this shape. Throws ConfigError when a size is below 1 or there are more
/// than 2^28 numbers.
int64_t sample_elements(const model::Shape& shape);

/// [count, shape...].
inline model::Shape batch_shape(size_t count, const model::Shape& shape) {
  model::Shape result{static_cast<int64_t>(count)};
  result.insert(result.end(), shape.begin(), shape.end());
  return result;
}

}  // namespace penstock::train
