// The learning rate that falls where a metric no longer improves: torch.optim.lr_scheduler's
// ReduceLROnPlateau. A plain value without tensors.
//
//   const auto spec = plateau_of("ReduceLROnPlateau,patience=2", Metric::Accuracy);
//   PlateauState state{.rate = 0.1, .first = 0.1};
//   observe(*spec, /*value=*/0.81, state);   // after each evaluation; state.rate is the next one
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "penstock/train/metric.h"

namespace penstock::train {

/// With PyTorch's values.
struct PlateauSpec {
  bool rises = false;  ///< mode max: more is better
  double factor = 0.1;
  int64_t patience = 10;  ///< evaluations without improvement before the rate falls
  double threshold = 1e-4;
  bool is_relative = true;  ///< threshold_mode rel
  int64_t cooldown = 0;     ///< evaluations after a fall that do not count
  double min_rate = 0;
  double least_change = 1e-8;  ///< eps: a smaller fall is left out
};

/// What evaluations have made of it; checkpoints keep it.
struct PlateauState {
  double rate = 0;                  ///< the learning rate
  double first = 0;                 ///< before any fall; 0: not known
  std::optional<double> best = {};  ///< nothing: no evaluation yet
  int64_t without_improvement = 0;  ///< evaluations
  int64_t cooling = 0;              ///< evaluations that are left

  bool operator==(const PlateauState&) const = default;
};

/// Nothing where the schedule is another one. Without a mode of its own it follows the metric.
/// Throws ConfigError as parse_rate_schedule().
std::optional<PlateauSpec> plateau_of(const std::string& schedule, Metric metric);

/// Where a schedule begins at the rate `first`, or goes on at one that began at another: falls so
/// far count there, too. Where the state does not know at which, its rate stays.
void begin_at(double first, PlateauState& state);

/// The rate of a step, for which the schedule without evaluations has `planned`.
inline double on_plateau(double planned, const PlateauState& state) {
  return state.first > 0 ? planned * (state.rate / state.first) : planned;
}

/// An evaluation has this value. One that is no number is no improvement.
void observe(const PlateauSpec& spec, double value, PlateauState& state);

}  // namespace penstock::train
