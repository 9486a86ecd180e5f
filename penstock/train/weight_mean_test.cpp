#include "penstock/train/weight_mean.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

namespace penstock::train {
namespace {

TEST(WeightMean, SharesAreThoseOfAveragedModel) {
  const WeightMean ema{.ema = 0.9};
  EXPECT_EQ(average_share(ema, {}, 0), 1);
  EXPECT_DOUBLE_EQ(average_share(ema, {}, 1), 0.1);
  EXPECT_DOUBLE_EQ(average_share(ema, {}, 100), 0.1);
  const WeightMean swa{.swa_start = 5};
  EXPECT_EQ(average_share(swa, {}, 4), 1);
  EXPECT_EQ(average_share(swa, {}, 5), 1);
  EXPECT_DOUBLE_EQ(average_share(swa, {}, 6), 0.5);
  EXPECT_DOUBLE_EQ(average_share(swa, {}, 8), 0.25);
}

TEST(WeightMean, BeforeTheTriggerTheMeanIsTheWeights) {
  const WeightMean mean{.swa_patience = 2};
  EXPECT_EQ(average_share(mean, {}, 40), 1);
  EXPECT_DOUBLE_EQ(average_share(mean, {.began = 38}, 40), 1.0 / 3);
}

/// The lines of Merity et al. 2018, algorithm 1, as they stand there.
std::optional<size_t> begins_by_the_paper(const std::vector<double>& values, size_t n) {
  std::vector<double> logs;
  for (size_t t = 0; t < values.size(); ++t) {
    if (t > n) {
      const double least = *std::min_element(logs.begin(), logs.end() - static_cast<long>(n));
      if (values[t] > least) return t;
    }
    logs.push_back(values[t]);
  }
  return std::nullopt;
}

TEST(WeightMean, TheTriggerIsThatOfThePaper) {
  std::mt19937 generator(1);
  std::uniform_real_distribution<double> noise(0, 1);
  int begun = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const size_t n = static_cast<size_t>(trial % 7);
    std::vector<double> values;
    for (int i = 0; i < 20; ++i) values.push_back(noise(generator) - 0.1 * i);
    const WeightMean mean{.swa_patience = static_cast<int64_t>(n)};
    WeightMeanState state;
    for (size_t i = 0; i < values.size(); ++i)
      observe(mean, Metric::Loss, values[i], static_cast<int64_t>(i), state);
    const std::optional<size_t> expected = begins_by_the_paper(values, n);
    ASSERT_EQ(state.began.has_value(), expected.has_value()) << trial;
    EXPECT_EQ(state.began.value_or(0), static_cast<int64_t>(expected.value_or(0))) << trial;
    begun += state.began ? 1 : 0;
  }
  EXPECT_GT(begun, 50);
  EXPECT_LT(begun, 290);
}

TEST(WeightMean, OfAMetricThatRisesTheSameTheOtherWayRound) {
  const WeightMean mean{.swa_patience = 1};
  WeightMeanState state;
  int64_t step = 0;
  for (const double value : {0.5, 0.6, 0.7, std::numeric_limits<double>::quiet_NaN(), 0.65})
    observe(mean, Metric::Accuracy, value, ++step, state);
  EXPECT_FALSE(state.began);  // 0.65 against 0.6: the last one does not count
  observe(mean, Metric::Accuracy, 0.66, ++step, state);
  EXPECT_EQ(state.began, 6);
}

}  // namespace
}  // namespace penstock::train
