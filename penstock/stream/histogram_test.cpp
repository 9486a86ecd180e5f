#include "penstock/stream/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "penstock/util/numbers/rng.h"

namespace penstock::stream {
namespace {

TEST(Histogram, PercentilesLieWithinTwoPerCentOfTheSortedTimes) {
  Rng rng(3);
  Histogram histogram;
  std::vector<int64_t> times;
  for (int i = 0; i < 5000; ++i) {
    times.push_back(static_cast<int64_t>(2000 * std::exp(rng.uniform() * 15)));
    histogram.add(times.back());
  }
  std::sort(times.begin(), times.end());
  for (const double share : {0.01, 0.5, 0.9, 0.99, 1.0}) {
    const auto exact = static_cast<double>(times[static_cast<size_t>(std::ceil(share * 5000)) - 1]);
    EXPECT_GE(static_cast<double>(histogram.percentile(share)), exact * 0.999);
    EXPECT_LE(static_cast<double>(histogram.percentile(share)), exact * 1.021);
  }
  EXPECT_EQ(histogram.count(), 5000);
}

TEST(Histogram, TakesTimesOfAnyLength) {
  Histogram histogram;
  EXPECT_EQ(histogram.percentile(0.5), 0);
  histogram.add(0);
  histogram.add(-5);
  EXPECT_EQ(histogram.percentile(1), 1000);
  histogram.add(INT64_MAX);
  EXPECT_GT(histogram.percentile(1), 900'000'000'000);
  histogram.clear();
  EXPECT_EQ(histogram.count(), 0);
}

}  // namespace
}  // namespace penstock::stream
