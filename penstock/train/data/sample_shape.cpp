#include "penstock/train/data/sample_shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::train {

int64_t sample_elements(const model::Shape& shape) {
  constexpr int64_t kMost = int64_t{1} << 28;
  int64_t product = 1;
  for (const int64_t size : shape) product = size < 1 ? 0 : saturating_mul(product, size);
  if (shape.empty() || product < 1 || product > kMost) {
    throw ConfigError(
        fmt::format("sample shape [{}]: expected sizes of at least 1 and at most {} numbers in all",
                    fmt::join(shape, ", "), kMost));
  }
  return product;
}

}  // namespace penstock::train
