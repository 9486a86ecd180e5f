#include "penstock/profile/pass_record.h"

#include <algorithm>
#include <cmath>

#include "penstock/util/numbers/rounding.h"

namespace penstock::profile {

namespace {

constexpr size_t kLeastPasses = 4;
constexpr size_t kMostStretches = 20;
constexpr double kMostMedians = 3;
constexpr double kMostCorrelation = 0.8;
// Faster by less than this is noise.
constexpr double kFalls = 0.97;
constexpr size_t kCompared = 3;

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

/// Sums of squares and of products of neighbours, of the deviations from the mean.
struct Deviations {
  double squares = 0;
  double neighbours = 0;
};

Deviations deviations_of(const std::vector<double>& values, double mean) {
  Deviations sums;
  for (size_t i = 0; i < values.size(); ++i) {
    sums.squares += (values[i] - mean) * (values[i] - mean);
    if (i > 0) sums.neighbours += (values[i] - mean) * (values[i - 1] - mean);
  }
  return sums;
}

std::vector<double> means_of_stretches(const std::vector<double>& values) {
  const size_t count = std::min(values.size(), kMostStretches);
  std::vector<double> means;
  for (size_t s = 0; s < count; ++s) {
    const size_t begin = values.size() * s / count;
    const size_t end = values.size() * (s + 1) / count;
    double sum = 0;
    for (size_t i = begin; i < end; ++i) sum += values[i];
    means.push_back(sum / static_cast<double>(end - begin));
  }
  return means;
}

}  // namespace

bool PassRecord::still_falls() const {
  if (passes_ns_.size() < 2 * kCompared) return false;
  const auto least = [&](size_t begin) {
    const auto at = passes_ns_.begin() + static_cast<std::ptrdiff_t>(begin);
    return static_cast<double>(*std::min_element(at, at + kCompared));
  };
  return least(passes_ns_.size() - kCompared) < kFalls * least(passes_ns_.size() - 2 * kCompared);
}

PassTimes PassRecord::times() const {
  if (passes_ns_.size() < kLeastPasses) return {};
  std::vector<int64_t> sorted = passes_ns_;
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2),
                   sorted.end());
  const double most = kMostMedians * static_cast<double>(sorted[sorted.size() / 2]);
  std::vector<double> values;
  values.reserve(passes_ns_.size());
  for (const int64_t ns : passes_ns_) values.push_back(std::min(static_cast<double>(ns), most));
  const double mean = mean_of(values);
  if (!(mean > 0)) return {};

  const auto passes = static_cast<double>(values.size());
  const std::vector<double> stretches = means_of_stretches(values);
  const auto count = static_cast<double>(stretches.size());
  const Deviations between = deviations_of(stretches, mean_of(stretches));
  const double correlation =
      between.squares > 0 ? std::clamp(between.neighbours / between.squares, 0.0, kMostCorrelation)
                          : 0;
  const double error = std::sqrt(between.squares / (count - 1) / count) *
                       std::sqrt((1 + correlation) / (1 - correlation));
  return {.mean_ns = nearest(mean),
          .spread = std::sqrt(deviations_of(values, mean).squares / (passes - 1)) / mean,
          .error = error / mean,
          .stretches = static_cast<int>(stretches.size())};
}

}  // namespace penstock::profile
