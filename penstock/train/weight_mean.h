// Means of the weights over the steps, for evaluation: exponential (EMA) or equal from a step on
// (SWA: Izmailov et al. 2018, algorithm 1), as torch.optim.swa_utils.AveragedModel makes them. The
// equal mean may begin where the metric no longer improves (Merity et al. 2018, algorithm 1: with
// SGD that is NT-ASGD). Plain values without tensors.
//
//   WeightMean mean{.ema = 0.999};
//   average_share(mean, {}, /*step=*/0) == 1;      // the first mean is the first step's weights
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "penstock/train/metric.h"

namespace penstock::train {

/// At most one of them.
struct WeightMean {
  double ema = 0;                            ///< the mean's share of its old value; 0: none
  std::optional<int64_t> swa_start = {};     ///< the first step (from 0) of an equal mean
  std::optional<int64_t> swa_patience = {};  ///< evaluations (n) of the trigger of an equal mean

  bool is_used() const { return ema > 0 || swa_start || swa_patience; }
};

/// What evaluations have said; checkpoints keep it.
struct WeightMeanState {
  std::optional<int64_t> began = {};  ///< the first step of the equal mean, by the trigger
  std::vector<double> values = {};    ///< the best of all but the last n evaluations, then those n

  bool operator==(const WeightMeanState&) const = default;
};

/// StepContext::average_share of a step (from 0). Before an equal mean begins, it is the weights.
inline double average_share(const WeightMean& mean, const WeightMeanState& state, int64_t step) {
  if (mean.ema > 0) return step == 0 ? 1 : 1 - mean.ema;
  const std::optional<int64_t> first = mean.swa_patience ? state.began : mean.swa_start;
  if (!first || step <= *first) return 1;
  return 1 / static_cast<double>(step - *first + 1);
}

/// An evaluation before step `step` has this value. The mean begins when it is worse than the best
/// of all evaluations but the last n.
inline void observe(const WeightMean& mean, Metric metric, double value, int64_t step,
                    WeightMeanState& state) {
  if (!mean.swa_patience || state.began || !std::isfinite(value)) return;
  std::vector<double>& values = state.values;
  const auto most = static_cast<size_t>(*mean.swa_patience);
  if (values.size() > most && !reaches(metric, value, values.front())) state.began = step;
  values.push_back(value);
  // Of those that are no longer among the last n, the best is enough.
  if (values.size() <= most + 1) return;
  if (reaches(metric, values[0], values[1])) values[1] = values[0];
  values.erase(values.begin());
}

}  // namespace penstock::train
