#include "penstock/plan/sync_precision.h"

#include <fmt/format.h>

#include "penstock/util/error.h"

namespace penstock::plan {

FloatType parse_sync_precision(std::string_view name) {
  for (const FloatType precision : kSyncPrecisions) {
    if (name == to_string(precision)) return precision;
  }
  throw ConfigError(
      fmt::format("unknown precision of gradients '{}' (sync precision); expected one of float32, "
                  "bfloat16, float16",
                  name.substr(0, 40)));
}

void check_sync_precision(GradientSync sync, FloatType precision) {
  if (sync != GradientSync::Asynchronous || !is_short(precision)) return;
  throw ConfigError(fmt::format(
      "the synchronisation asynchronous sends changes of weights, of which 16 bits would lose the "
      "small ones: expected the sync precision float32, found {}",
      to_string(precision)));
}

}  // namespace penstock::plan
