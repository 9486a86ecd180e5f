#include "penstock/plan/compensation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "penstock/plan/weight_rules.h"
#include "penstock/util/error.h"

namespace penstock::plan {
namespace {

using ::testing::HasSubstr;

TEST(Compensation, NamesAreReadBack) {
  for (const CompensationTraits& row : compensations()) {
    EXPECT_EQ(parse_compensation(row.name), row.compensation);
    EXPECT_FALSE(row.summary.empty());
  }
  EXPECT_EQ(compensation_names(), "none, predict, rate, correct or nesterov");
  EXPECT_THROW(parse_compensation("prediction"), ConfigError);
}

TEST(Compensation, EachWorksWhereItHasSomethingToMakeUpFor) {
  const auto works = [](Compensation compensation) {
    std::string policies;
    for (const WeightPolicyTraits& row : weight_policies()) {
      if (compensation_refusal(compensation, row.policy).empty())
        policies += std::string(row.name) + " ";
    }
    return policies;
  };
  EXPECT_EQ(works(Compensation::None), "flush stash vertical-sync 2bw latest current ");
  EXPECT_EQ(works(Compensation::Predict), "stash vertical-sync 2bw ");
  EXPECT_EQ(works(Compensation::Rate), "stash vertical-sync 2bw latest current ");
  EXPECT_EQ(works(Compensation::Correct), "latest ");
  EXPECT_EQ(works(Compensation::Nesterov), "stash vertical-sync 2bw ");
}

TEST(Compensation, RowsSayWhatOtherPartsNeed) {
  const auto with = [](bool CompensationTraits::*trait) {
    std::string names;
    for (const CompensationTraits& row : compensations()) {
      if (row.*trait) names += std::string(row.name) + " ";
    }
    return names;
  };
  EXPECT_EQ(with(&CompensationTraits::asks_next_step), "predict ");
  EXPECT_EQ(with(&CompensationTraits::keeps_mean_step), "correct ");
  EXPECT_EQ(with(&CompensationTraits::changes_optimizer), "nesterov ");
  EXPECT_EQ(with(&CompensationTraits::fixes_momentum), "predict nesterov ");
  EXPECT_EQ(with(&CompensationTraits::divides_rate), "rate ");
  EXPECT_EQ(with(&CompensationTraits::forbids_recomputation), "correct ");
  for (const CompensationTraits& row : compensations()) {
    EXPECT_EQ(row.ahead != nullptr, row.asks_next_step || row.keeps_mean_step)
        << row.name << ": weights are moved by something";
  }
}

TEST(Compensation, ARefusalSaysWhyAndWhatWorks) {
  EXPECT_EQ(compensation_refusal(Compensation::Predict, WeightPolicy::Flush),
            "compensation predict does not work with weights flush, where no gradient is computed "
            "on weights of earlier steps; expected weights stash, vertical-sync or 2bw");
  EXPECT_EQ(compensation_refusal(Compensation::Correct, WeightPolicy::Stash),
            "compensation correct does not work with weights stash, where forward and backward "
            "passes of a micro-batch read the same weights already; expected weights latest");
  EXPECT_THAT(compensation_refusal(Compensation::Nesterov, WeightPolicy::Latest),
              HasSubstr("backward passes read newer weights than forward passes"));
  EXPECT_THAT(compensation_refusal(Compensation::Correct, WeightPolicy::Current),
              HasSubstr("another micro-batch"));
}

TEST(Compensation, AStageMayStandInTheWay) {
  const auto refusal = [](Compensation compensation, const CompensatedStage& stage) {
    return compensation_refusal(compensation, stage);
  };
  EXPECT_EQ(refusal(Compensation::Predict, {.stage = 2, .recompute = true}), "");
  EXPECT_THAT(refusal(Compensation::Correct, {.stage = 2, .recompute = true}),
              HasSubstr("stage 2 recomputes"));
  EXPECT_THAT(refusal(Compensation::Predict, {.offload = true}), HasSubstr("memory of the host"));
  EXPECT_THAT(refusal(Compensation::Predict, {.state_parts = 2}), HasSubstr("whole states"));
  EXPECT_EQ(refusal(Compensation::Rate, {.offload = true, .state_parts = 2}), "");
  EXPECT_EQ(refusal(Compensation::Nesterov, {.recompute = true, .state_parts = 2}), "");
}

TEST(Compensation, PredictReachesTheStepOfTheMiniBatch) {
  for (const bool is_backward : {false, true}) {
    EXPECT_EQ(
        steps_ahead(
            Compensation::Predict,
            {.mini_batch = 7, .version = 4, .forward_version = 4, .is_backward = is_backward}),
        3);
  }
  EXPECT_EQ(steps_ahead(Compensation::Rate, {.mini_batch = 7, .version = 4}), 0);
}

TEST(Compensation, CorrectGoesBackToTheForwardPass) {
  EXPECT_EQ(steps_ahead(Compensation::Correct, {.mini_batch = 7, .version = 4}), 0);
  EXPECT_EQ(steps_ahead(Compensation::Correct,
                        {.mini_batch = 7, .version = 7, .forward_version = 4, .is_backward = true}),
            -3);
}

TEST(Compensation, CopiesAreThoseOfStagesWithDelays) {
  EXPECT_EQ(extra_copies(Compensation::Predict, 4, 4), 4);
  EXPECT_EQ(extra_copies(Compensation::Predict, 1, 1), 0);
  EXPECT_EQ(extra_copies(Compensation::Predict, 2, 1), 2);  // 2bw on the last stage
  EXPECT_EQ(extra_copies(Compensation::Correct, 1, 4), 1);
  EXPECT_EQ(extra_copies(Compensation::Correct, 1, 1), 0);
  EXPECT_EQ(extra_copies(Compensation::Nesterov, 4, 4), 0);
}

// 4^(1 - k/100): 4, 4^0.75, 4^0.5, 1.
TEST(Compensation, RateIsDividedByAFadingPowerOfTheDelay) {
  EXPECT_DOUBLE_EQ(rate_divisor(4, 0, 100), 4);
  EXPECT_DOUBLE_EQ(rate_divisor(4, 25, 100), 2.8284271247461903);
  EXPECT_DOUBLE_EQ(rate_divisor(4, 50, 100), 2);
  EXPECT_DOUBLE_EQ(rate_divisor(4, 100, 100), 1);
  EXPECT_DOUBLE_EQ(rate_divisor(4, 1000, 100), 1);
  EXPECT_DOUBLE_EQ(rate_divisor(0.5, 0, 100), 1);
  EXPECT_DOUBLE_EQ(rate_divisor(4, 0, 0), 1);
}

TEST(Compensation, TheMeanOfStepsCoversTheDelay) {
  EXPECT_DOUBLE_EQ(mean_step_decay(0), 0);
  EXPECT_DOUBLE_EQ(mean_step_decay(2), 0.36787944117144233);
  // Of what is kept after as many steps as the delay, exp(-2) is left.
  EXPECT_NEAR(std::pow(mean_step_decay(7), 7), 0.1353352832366127, 1e-12);
}

}  // namespace
}  // namespace penstock::plan
