// An interval in a JSON file.
//
//   const Interval interval = read_interval(root, "throughput_low", "throughput_high");
#pragma once

#include <string_view>

#include "penstock/plan/interval.h"
#include "penstock/util/files/json.h"

namespace penstock::plan {

/// 0 to 0 where one of the ends is missing or 0: not known. Throws ConfigError, with the place, for
/// an end below 0 and for a lower one above the higher one.
Interval read_interval(const JsonReader& object, std::string_view low, std::string_view high);

}  // namespace penstock::plan
