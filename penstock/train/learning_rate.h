// Learning-rate schedules: a pure function of the optimiser step.
//
//   learning_rate({.base = 0.1, .schedule = "StepLR,step_size=30"}, step, total_steps)
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace penstock::train {

struct LearningRateSpec {
  double base = 0.05;
  /// "constant", "step" (times `factor` every `every` steps), "cosine" (to zero at the end),
  /// "linear" (to zero), or as parse_rate_schedule() takes it
  std::string schedule = "constant";
  int64_t warmup_steps = 0;  ///< linear from base / warmup_steps (Goyal et al. 2017, 2.2)
  double factor = 0.1;
  int64_t every = 0;
  /// All rates are multiplied by this, as for a large mini-batch.
  double scale = 1;
  /// Steps over which the factor goes from 1 to `scale` (Goyal et al. 2017, 2.2: gradual warm-up).
  int64_t scale_steps = 0;
};

/// The rate that a constant schedule has after its warm-up.
inline double top_rate(const LearningRateSpec& spec) { return spec.base * spec.scale; }

/// Throws ConfigError for unknown schedules and values out of range (base not finite or negative,
/// `every` < 1 for "step", ...).
void validate(const LearningRateSpec& spec);

/// Whether it has a last step that it does not say itself, so that the run's length counts.
inline bool has_end(const LearningRateSpec& spec) {
  const std::string& text = spec.schedule;
  if (text == "cosine" || text == "linear") return true;
  const auto lacks = [&text](const std::string& name, const std::string& length) {
    for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
      const size_t end = text.find_first_of("*@", at);
      if (text.substr(at, end - at).find(length) == std::string::npos) return true;
    }
    return false;
  };
  return lacks("CosineAnnealingLR", "T_max=") || lacks("OneCycleLR", "total_steps=");
}

/// The rate of optimiser step `step` (from 0) of `total_steps`.
double learning_rate(const LearningRateSpec& spec, int64_t step, int64_t total_steps);

/// Whether the schedule has a momentum that needs an optimiser with one (cycle_momentum=yes).
bool needs_momentum(const LearningRateSpec& spec);
/// The momentum of the step where the schedule has one (rate_schedules.h); nothing: the optimiser's
/// own.
std::optional<double> scheduled_momentum(const LearningRateSpec& spec, int64_t step,
                                         int64_t total_steps);

}  // namespace penstock::train
