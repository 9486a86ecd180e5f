// The summary of a time's samples that a profile keeps. Internal to the profiler.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "penstock/util/numbers/rounding.h"

namespace penstock::model::detail {

struct Summary {
  int64_t mean = 0;    ///< of the samples, each limited to kMostMedians medians
  int64_t spread = 0;  ///< interquartile range
};

/// A stall that is this much longer than a typical sample does not predict the next run.
inline constexpr int64_t kMostMedians = 3;

/// The distribution of times has a long tail of slow samples, and the time of a run is the sum of
/// its actions: it follows their mean. The sum of the medians of many layers is several per cent
/// less than the time of a pass. `samples` must not be empty.
inline Summary summarize(std::vector<int64_t> samples) {
  std::sort(samples.begin(), samples.end());
  const int64_t most = kMostMedians * samples[samples.size() / 2];
  double sum = 0;
  for (const int64_t sample : samples) sum += static_cast<double>(std::min(sample, most));
  return {nearest(sum / static_cast<double>(samples.size())),
          samples[(samples.size() - 1) * 3 / 4] - samples[(samples.size() - 1) / 4]};
}

}  // namespace penstock::model::detail
