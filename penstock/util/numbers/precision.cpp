#include "penstock/util/numbers/precision.h"

#include <fmt/format.h>

#include "penstock/util/error.h"

namespace penstock {

std::string_view to_string(Precision precision) {
  return precision == Precision::Tf32 ? "tf32" : to_string(float_type(precision));
}

Precision parse_precision(std::string_view name) {
  for (const Precision precision : kPrecisions) {
    if (name == to_string(precision)) return precision;
  }
  throw ConfigError(
      fmt::format("unknown precision '{}'; expected one of float32, tf32, bfloat16, float16",
                  name.substr(0, 40)));
}

}  // namespace penstock
