#include "penstock/stream/histogram.h"

#include <algorithm>
#include <cmath>

namespace penstock::stream {

namespace {
constexpr double kFirst_ns = 1000;
constexpr double kRatio = 1.02;
}  // namespace

void Histogram::add(int64_t ns) {
  const double ratio = std::max(static_cast<double>(ns), kFirst_ns) / kFirst_ns;
  const auto place = static_cast<size_t>(std::ceil(std::log(ratio) / std::log(kRatio) - 1e-9));
  ++counts_[std::min(place, kClasses - 1)];
  ++count_;
}

int64_t Histogram::percentile(double share) const {
  if (count_ == 0) return 0;
  const auto wanted =
      std::max<int64_t>(1, static_cast<int64_t>(std::ceil(share * static_cast<double>(count_))));
  int64_t seen = 0;
  for (size_t i = 0; i < kClasses; ++i) {
    seen += counts_[i];
    if (seen >= wanted)
      return static_cast<int64_t>(kFirst_ns * std::pow(kRatio, static_cast<double>(i)));
  }
  return 0;
}

}  // namespace penstock::stream
