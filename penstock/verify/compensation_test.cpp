// Schedules whose delays are compensated: sound as they are made, and refused once damaged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/schedule/lazy_schedule.h"
#include "penstock/verify/testing_schedules.h"

namespace penstock::verify::testing {
namespace {

using schedule::Action;
using schedule::Compensation;
using ::testing::HasSubstr;

/// Every kind, policy and compensation that work together, in several shapes.
template <class Visit>
void for_each_compensated(Visit visit) {
  for (const auto& [kind, policy] : kinds_and_policies()) {
    for (const plan::CompensationTraits& row : plan::compensations()) {
      if (row.policies.empty() || !compensation_refusal(row.compensation, policy).empty()) continue;
      for (const auto& replicas : {std::vector<int>{1, 1, 1, 1}, {2, 3, 1}, {2, 1}}) {
        for (const int64_t accumulate : {1, 3, 8}) {
          ScheduleShape shape{.replicas = replicas,
                              .micro_batches = 24,
                              .accumulate = accumulate,
                              .policy = policy};
          shape.compensation = row.compensation;
          if (const auto fitted = shape_for(kind, shape)) visit(kind, *fitted);
        }
      }
    }
  }
}

Schedule predicted(WeightPolicy policy = WeightPolicy::Stash,
                   Compensation compensation = Compensation::Predict) {
  ScheduleShape shape{.replicas = {1, 1, 1}, .micro_batches = 6, .policy = policy};
  shape.compensation = compensation;
  return full_schedule(Strategy::OneFOneB, shape);
}

TEST(CompensatedSchedules, AreSoundAndReadBack) {
  int count = 0;
  for_each_compensated([&](Strategy kind, const ScheduleShape& shape) {
    const Schedule full = full_schedule(kind, shape);
    EXPECT_EQ(first_violation(full, std::max<int64_t>(4, min_credits(full))), "")
        << describe(kind, shape);
    EXPECT_EQ(schedule::parse_schedule(schedule::to_text(full), "text"), full);
    ++count;
  });
  EXPECT_GT(count, 60);
}

TEST(CompensatedSchedules, MadeWhileTheyAreReadAreTheSame) {
  int count = 0;
  for_each_compensated([&](Strategy kind, const ScheduleShape& shape) {
    if (!schedule::LazySchedule::can_make(kind, shape)) return;
    const schedule::LazySchedule lazy(kind, shape, schedule::chain_links(shape.num_stages()));
    const Schedule full = full_schedule(kind, shape);
    for (size_t w = 0; w < full.workers.size(); ++w)
      EXPECT_TRUE(lazy.list(WorkerId{static_cast<int32_t>(w)}) == full.workers[w])
          << describe(kind, shape);
    ++count;
  });
  EXPECT_GT(count, 60);
}

TEST(CompensatedSchedules, SayByHowManyStepsWeightsAreMoved) {
  EXPECT_THAT(schedule::to_text(predicted()),
              HasSubstr("# compensate: predict\n# lowered: yes\n0F0@0,0SEND_F0,0F1@0+1,0SEND_F1,"
                        "0F2@0+2,0SEND_F2,0RECV_B0,0B0@0,0STEP0@0,0F3@1+2,"));
  EXPECT_THAT(schedule::to_text(predicted(WeightPolicy::Latest, Compensation::Correct)),
              HasSubstr("0RECV_B1,0B1@1-1,0FREE1@1,0STEP1@1,"));
}

TEST(CompensatedSchedules, AWrongMoveOfAnyPassIsFound) {
  for_each_compensated([](Strategy kind, const ScheduleShape& shape) {
    const Schedule good = full_schedule(kind, shape);
    for (size_t w = 0; w < good.workers.size(); ++w) {
      // The first and the last pass of a worker.
      size_t last = 0;
      size_t first = good.workers[w].size();
      for (size_t i = 0; i < good.workers[w].size(); ++i) {
        if (!is_compute(good.workers[w][i].op)) continue;
        first = std::min(first, i);
        last = i;
      }
      for (const size_t i : {first, last}) {
        Schedule bad = good;
        ++bad.workers[w][i].ahead;
        const auto violations = verify(bad, {.credits = 1000});
        ASSERT_FALSE(violations.empty()) << describe(kind, shape);
        EXPECT_EQ(violations.front().rule, "weights");
        EXPECT_THAT(violations.front().message, HasSubstr("by"));
      }
    }
  });
}

TEST(CompensatedSchedules, AMoveThatNobodyAskedForIsFound) {
  Schedule bad = predicted();
  bad.shape.compensation = Compensation::None;
  const auto violations = verify(bad, {.credits = 4});
  ASSERT_FALSE(violations.empty());
  EXPECT_EQ(violations.front().rule, "weights");
  EXPECT_THAT(violations.front().message,
              HasSubstr("compensation none moves version 0 by 0 steps here, found 1"));
}

TEST(CompensatedSchedules, WhatCannotWorkIsRefused) {
  const auto refusal = [](ScheduleShape shape) -> std::string {
    try {
      validate(shape);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  ScheduleShape shape{.replicas = {1, 1}, .micro_batches = 4, .policy = WeightPolicy::Flush};
  shape.compensation = Compensation::Rate;
  EXPECT_THAT(refusal(shape), HasSubstr("does not work with weights flush"));
  shape.policy = WeightPolicy::Latest;
  EXPECT_EQ(refusal(shape), "");
  shape.compensation = Compensation::Correct;
  shape.recompute = {false, true};
  EXPECT_THAT(refusal(shape), HasSubstr("stage 1 recomputes"));
}

TEST(CompensatedSchedules, MovesAreReadStrictly) {
  const auto error_of = [](const std::string& action) -> std::string {
    try {
      schedule::parse_schedule(
          "# penstock schedule 1\n# replicas: 1\n# micro-batches: 1  accumulate: 1  weights: "
          "flush\n" +
              action + "\n",
          "s");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(error_of("0F0@0+1"), "");
  EXPECT_THAT(error_of("0F0@0+0"), HasSubstr("cannot be moved by 0 steps"));
  EXPECT_THAT(error_of("0F0@0+"), HasSubstr("a number of steps after the sign"));
  EXPECT_THAT(error_of("0STEP0@0+1"), HasSubstr("only the weights of F, B, I, W and R"));
  EXPECT_THAT(error_of("0F0@0-99999999999"), HasSubstr("99999999999"));
}

TEST(CompensatedSchedules, DelaysAreThoseOfTheVersions) {
  for_each_compensated([](Strategy kind, const ScheduleShape& shape) {
    if (shape.compensation != Compensation::Rate || kind == Strategy::Online) return;
    // Of the last mini-batches, when the pipeline is full: their mean over the micro-batches.
    const Schedule full = full_schedule(kind, shape);
    std::vector<double> sums(shape.replicas.size());
    for (const auto& list : full.workers) {
      for (const Action& action : list) {
        if (action.op != schedule::Op::Forward) continue;
        if (action.mini_batch.value < shape.num_mini_batches() - 1) continue;
        sums[action.stage.index()] +=
            static_cast<double>(action.mini_batch.value - action.version.value);
      }
    }
    const std::vector<double> delays = schedule::mean_delays(shape);
    for (size_t s = 0; s < sums.size(); ++s)
      EXPECT_NEAR(sums[s] / static_cast<double>(shape.accumulate), delays[s], 1e-9)
          << describe(kind, shape) << " stage " << s;
  });
}

}  // namespace
}  // namespace penstock::verify::testing
