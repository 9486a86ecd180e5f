#include "penstock/train/learning_rate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "penstock/train/rate_schedules.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"

namespace penstock::train {

namespace {

bool is_simple(const std::string& schedule) {
  return schedule == "constant" || schedule == "step" || schedule == "cosine" ||
         schedule == "linear";
}

}  // namespace

void validate(const LearningRateSpec& spec) {
  if (!std::isfinite(spec.base) || spec.base < 0)
    throw ConfigError(
        fmt::format("learning rate: expected a number of at least 0, found {}", spec.base));
  if (!is_simple(spec.schedule)) parse_rate_schedule(spec.schedule);
  if (spec.warmup_steps < 0)
    throw ConfigError(fmt::format(
        "warm-up steps of the learning rate: expected at least 0, found {}", spec.warmup_steps));
  if (!std::isfinite(spec.scale) || spec.scale < 0 || spec.scale_steps < 0) {
    throw ConfigError(fmt::format(
        "learning rate: expected a factor of at least 0 after at least 0 steps, found {} after {}",
        spec.scale, spec.scale_steps));
  }
  if (spec.schedule != "step") return;
  if (spec.every < 1)
    throw ConfigError(fmt::format(
        "learning-rate schedule 'step': expected at least 1 step between two cuts, found {}",
        spec.every));
  if (!std::isfinite(spec.factor) || spec.factor < 0) {
    throw ConfigError(fmt::format(
        "learning-rate schedule 'step': expected a factor of at least 0, found {}", spec.factor));
  }
}

namespace {

double unscaled_rate(const LearningRateSpec& spec, int64_t step, int64_t total_steps) {
  PENSTOCK_CHECK(step >= 0, step);
  if (step < spec.warmup_steps)
    return spec.base * static_cast<double>(step + 1) / static_cast<double>(spec.warmup_steps);
  if (!is_simple(spec.schedule)) {
    return rate_of(parse_rate_schedule(spec.schedule),
                   {.base = spec.base,
                    .step = step - spec.warmup_steps,
                    .total_steps = total_steps - spec.warmup_steps});
  }
  // Steps are counted from the start of the run, so a decay every 30 epochs is at epoch 30 with and
  // without a warm-up.
  if (spec.schedule == "step")
    return spec.base * std::pow(spec.factor, static_cast<double>(step / spec.every));
  if (spec.schedule == "constant") return spec.base;
  const double span = static_cast<double>(std::max<int64_t>(total_steps - spec.warmup_steps, 1));
  const double progress = std::min(static_cast<double>(step - spec.warmup_steps) / span, 1.0);
  if (spec.schedule == "linear") return spec.base * (1 - progress);
  PENSTOCK_CHECK(spec.schedule == "cosine", spec.schedule);
  return spec.base * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

double growth(const LearningRateSpec& spec, int64_t step) {
  if (step >= spec.scale_steps) return spec.scale;
  return 1 + (spec.scale - 1) * static_cast<double>(step) / static_cast<double>(spec.scale_steps);
}

}  // namespace

double learning_rate(const LearningRateSpec& spec, int64_t step, int64_t total_steps) {
  return unscaled_rate(spec, step, total_steps) * growth(spec, step);
}

bool needs_momentum(const LearningRateSpec& spec) {
  return !is_simple(spec.schedule) &&
         cycles_momentum(parse_rate_schedule(spec.schedule)) == CyclesMomentum::Always;
}

std::optional<double> scheduled_momentum(const LearningRateSpec& spec, int64_t step,
                                         int64_t total_steps) {
  if (is_simple(spec.schedule)) return std::nullopt;
  const RateSchedule schedule = parse_rate_schedule(spec.schedule);
  if (cycles_momentum(schedule) == CyclesMomentum::Never) return std::nullopt;
  return momentum_of(schedule, {.base = spec.base,
                                .step = std::max<int64_t>(step - spec.warmup_steps, 0),
                                .total_steps = total_steps - spec.warmup_steps});
}

}  // namespace penstock::train
