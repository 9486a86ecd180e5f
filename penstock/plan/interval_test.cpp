#include "penstock/plan/interval.h"

#include <gtest/gtest.h>

#include <cmath>

namespace penstock::plan {
namespace {

TEST(Interval, IsNotKnownWithoutAMeasuredError) {
  EXPECT_EQ(throughput_interval(Plan{}, 1000), std::nullopt);
  Plan plan;
  plan.prediction.compute_error = 0.01;
  EXPECT_EQ(throughput_interval(plan, 0), std::nullopt);
}

TEST(Interval, AddsTheErrorsOfProfileAndModel) {
  Plan plan;
  plan.prediction.compute_error = 0.02;
  const auto interval = throughput_interval(plan, 1000);
  ASSERT_TRUE(interval);
  EXPECT_NEAR(interval->low, 1000 * (1 - std::hypot(0.04, kModelError)), 1e-6);
  EXPECT_NEAR(interval->high, 1000 * (1 + std::hypot(0.04, kModelError)), 1e-6);
  EXPECT_TRUE(interval->holds(1000));
  EXPECT_TRUE(interval->holds(interval->low));
  EXPECT_FALSE(interval->holds(interval->high * 1.01));
}

TEST(Interval, AProfileKnownToTwoPerCentIsAtMostAQuarterWide) {
  Plan plan;
  plan.prediction.compute_error = 0.02;
  const auto interval = throughput_interval(plan, 1000);
  EXPECT_LE(interval->high - interval->low, 250);
}

TEST(Interval, NeverBelowNothing) {
  Plan plan;
  plan.prediction.compute_error = 3;
  EXPECT_EQ(throughput_interval(plan, 1000)->low, 0);
}

TEST(Interval, TextHasThousandsApart) { EXPECT_EQ((Interval{980, 1120}.text()), "980 to 1,120"); }

}  // namespace
}  // namespace penstock::plan
