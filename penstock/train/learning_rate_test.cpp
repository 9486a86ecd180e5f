#include "penstock/train/learning_rate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "penstock/util/error.h"

namespace penstock::train {
namespace {

TEST(LearningRate, ConstantDoesNotChange) {
  const LearningRateSpec spec{.base = 0.5};
  for (const int64_t step : {0, 7, 1000}) EXPECT_DOUBLE_EQ(learning_rate(spec, step, 100), 0.5);
}

TEST(LearningRate, StepMultipliesEveryFewSteps) {
  const LearningRateSpec spec{.base = 1, .schedule = "step", .factor = 0.1, .every = 10};
  EXPECT_DOUBLE_EQ(learning_rate(spec, 9, 100), 1);
  EXPECT_DOUBLE_EQ(learning_rate(spec, 10, 100), 0.1);
  EXPECT_NEAR(learning_rate(spec, 29, 100), 0.01, 1e-15);
  EXPECT_EQ(learning_rate(spec, std::numeric_limits<int64_t>::max(), 100), 0);
}

TEST(LearningRate, CosineAndLinearFallToZero) {
  const LearningRateSpec cosine{.base = 2, .schedule = "cosine"};
  const LearningRateSpec linear{.base = 2, .schedule = "linear"};
  for (const LearningRateSpec& spec : {cosine, linear}) {
    EXPECT_DOUBLE_EQ(learning_rate(spec, 0, 80), 2);
    EXPECT_DOUBLE_EQ(learning_rate(spec, 40, 80), 1);
    EXPECT_DOUBLE_EQ(learning_rate(spec, 80, 80), 0);
    EXPECT_DOUBLE_EQ(learning_rate(spec, 81, 80), 0);
  }
  EXPECT_NEAR(learning_rate(cosine, 20, 80), 1 + std::sqrt(0.5), 1e-12);
  EXPECT_DOUBLE_EQ(learning_rate(linear, 20, 80), 1.5);
}

TEST(LearningRate, WarmUpRisesLinearlyAndTheScheduleFollows) {
  const LearningRateSpec spec{.base = 1, .schedule = "linear", .warmup_steps = 4};
  EXPECT_DOUBLE_EQ(learning_rate(spec, 0, 12), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(spec, 3, 12), 1);
  EXPECT_DOUBLE_EQ(learning_rate(spec, 4, 12), 1);
  EXPECT_DOUBLE_EQ(learning_rate(spec, 8, 12), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(spec, 12, 12), 0);
}

TEST(LearningRate, AWarmUpMayBeLongerThanTheRun) {
  const LearningRateSpec spec{.base = 1, .schedule = "cosine", .warmup_steps = 100};
  for (int64_t step = 0; step < 10; ++step)
    EXPECT_NEAR(learning_rate(spec, step, 10), static_cast<double>(step + 1) / 100, 1e-15);
}

TEST(LearningRate, RatesNeverRiseAfterTheWarmUp) {
  for (const char* schedule : {"constant", "step", "cosine", "linear"}) {
    const LearningRateSpec spec{
        .base = 0.3, .schedule = schedule, .warmup_steps = 5, .factor = 0.5, .every = 7};
    for (int64_t step = 5; step < 60; ++step) {
      EXPECT_LE(learning_rate(spec, step + 1, 50), learning_rate(spec, step, 50))
          << schedule << " " << step;
      EXPECT_GE(learning_rate(spec, step, 50), 0) << schedule << " " << step;
    }
  }
}

TEST(LearningRate, ValidateRefusesInvalidValues) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const LearningRateSpec& spec :
       {LearningRateSpec{.base = nan}, LearningRateSpec{.base = infinity},
        LearningRateSpec{.base = -0.1}, LearningRateSpec{.schedule = "sine"},
        LearningRateSpec{.schedule = ""}, LearningRateSpec{.warmup_steps = -1},
        LearningRateSpec{.schedule = "step", .every = 0},
        LearningRateSpec{.schedule = "step", .factor = nan, .every = 1},
        LearningRateSpec{.schedule = "step", .factor = -1, .every = 1}}) {
    EXPECT_THROW(validate(spec), ConfigError);
  }
  for (const char* schedule : {"constant", "cosine", "linear"})
    EXPECT_NO_THROW(validate({.schedule = schedule}));
  EXPECT_NO_THROW(validate({.base = 0, .schedule = "step", .every = 1}));
}

TEST(LearningRate, AnUnknownScheduleIsNamed) {
  EXPECT_THAT([] { validate({.schedule = "sine"}); },
              testing::ThrowsMessage<ConfigError>(testing::HasSubstr("'sine'")));
}

}  // namespace
}  // namespace penstock::train
