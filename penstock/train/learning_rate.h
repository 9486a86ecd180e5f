// Learning-rate schedules: a pure function of the optimiser step.
#pragma once

#include <cstdint>
#include <string>

namespace penstock::train {

struct LearningRateSpec {
  double base = 0.05;
  std::string schedule = "constant";  ///< "constant", "step" (times `factor` every `every` steps),
                                      ///< "cosine" (to zero at the end), "linear" (to zero)
  int64_t warmup_steps = 0;           ///< linear from base / warmup_steps (Goyal et al. 2017, 2.2)
  double factor = 0.1;
  int64_t every = 0;
};

/// Throws ConfigError for unknown schedules and values out of range (base not finite or negative,
/// `every` < 1 for "step", ...).
void validate(const LearningRateSpec& spec);

/// Whether it falls to zero at a last step, so that its length counts.
inline bool has_end(const LearningRateSpec& spec) {
  return spec.schedule == "cosine" || spec.schedule == "linear";
}

/// The rate of optimiser step `step` (from 0) of `total_steps`.
double learning_rate(const LearningRateSpec& spec, int64_t step, int64_t total_steps);

}  // namespace penstock::train
