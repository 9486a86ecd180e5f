#include "penstock/train/plateau.h"

#include <algorithm>

#include "penstock/train/rate_schedules.h"

namespace penstock::train {
namespace {

bool improves(const PlateauSpec& spec, double value, const std::optional<double>& best) {
  if (!best) return value == value;  // not NaN
  const double way = spec.rises ? 1 : -1;
  const double bar =
      spec.is_relative ? *best * (1 + way * spec.threshold) : *best + way * spec.threshold;
  return spec.rises ? value > bar : value < bar;
}

}  // namespace

std::optional<PlateauSpec> plateau_of(const std::string& schedule, Metric metric) {
  if (!schedule.starts_with(kPlateauName)) return std::nullopt;
  const RateSchedule parsed = parse_rate_schedule(schedule);
  const auto& values = parsed.front().parts.front().values;
  constexpr double kOfMetric = 0;
  constexpr double kMax = 2;
  return PlateauSpec{.rises = values[0] == kOfMetric ? traits(metric).rises : values[0] == kMax,
                     .factor = values[1],
                     .patience = static_cast<int64_t>(values[2]),
                     .threshold = values[3],
                     .is_relative = values[4] == 0,
                     .cooldown = static_cast<int64_t>(values[5]),
                     .min_rate = values[6],
                     .least_change = values[7]};
}

void begin_at(double first, PlateauState& state) {
  if (state.first > 0 && state.first != first) state.rate *= first / state.first;
  state.first = first;
}

void observe(const PlateauSpec& spec, double value, PlateauState& state) {
  if (improves(spec, value, state.best)) {
    state.best = value;
    state.without_improvement = 0;
  } else {
    ++state.without_improvement;
  }
  if (state.cooling > 0) {
    --state.cooling;
    state.without_improvement = 0;
  }
  if (state.without_improvement <= spec.patience) return;
  const double lower = std::max(state.rate * spec.factor, spec.min_rate);
  if (state.rate - lower > spec.least_change) state.rate = lower;
  state.cooling = spec.cooldown;
  state.without_improvement = 0;
}

}  // namespace penstock::train
