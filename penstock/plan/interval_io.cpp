#include "penstock/plan/interval_io.h"

#include <fmt/format.h>

namespace penstock::plan {

namespace {

double end_of(const JsonReader& object, std::string_view key) {
  const auto value = object.find(key);
  const double rate = value ? value->number() : 0;
  if (rate < 0) value->fail(fmt::format("expected a rate of at least 0, found {}", rate));
  return rate;
}

}  // namespace

Interval read_interval(const JsonReader& object, std::string_view low, std::string_view high) {
  const Interval interval{end_of(object, low), end_of(object, high)};
  if (interval.low == 0 || interval.high == 0) return {};
  if (interval.low > interval.high) {
    object.at(low).fail(fmt::format("expected at most {}, which is {}, found {}", high,
                                    interval.high, interval.low));
  }
  return interval;
}

}  // namespace penstock::plan
