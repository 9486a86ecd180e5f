#include "penstock/verify/verify_endless.h"

#include <gtest/gtest.h>

#include "penstock/schedule/generate.h"
#include "penstock/util/error.h"

namespace penstock::verify {
namespace {

using plan::Strategy;
using plan::WeightPolicy;
using schedule::chain_links;
using schedule::EndlessSchedule;
using schedule::make_endless;

TEST(VerifyEndless, OnlineIsSoundForEveryNumberOfStagesAndPolicy) {
  for (int stages = 1; stages <= 9; ++stages) {
    for (const WeightPolicy policy :
         {WeightPolicy::Current, WeightPolicy::Latest, WeightPolicy::Stash}) {
      const EndlessSchedule endless = make_endless(
          Strategy::Online,
          {.replicas = std::vector<int>(static_cast<size_t>(stages), 1), .policy = policy},
          chain_links(stages));
      const auto violations = verify_endless(endless, {.credits = 1});
      EXPECT_TRUE(violations.empty())
          << stages << " stages, " << to_string(policy) << ": " << violations.front().message;
    }
  }
}

TEST(VerifyEndless, EveryStrategyThatDoesNotFlushIsSound) {
  for (const Strategy strategy : {Strategy::OneFOneB, Strategy::TwoBuffered, Strategy::Online}) {
    for (const int replicas : {1, 2}) {
      schedule::ScheduleShape shape{.replicas = {replicas, 1, 1},
                                    .policy = default_policy(strategy)};
      shape.accumulate = default_accumulate(strategy, shape);
      const EndlessSchedule endless = make_endless(strategy, shape, chain_links(3));
      const auto violations = verify_endless(endless, {.credits = 4});
      EXPECT_TRUE(violations.empty()) << strategy << ": " << violations.front().message;
    }
  }
}

TEST(VerifyEndless, RefusesStrategiesThatFlush) {
  EXPECT_THROW(make_endless(Strategy::GPipe, {.replicas = {1, 1}}, chain_links(2)), ConfigError);
}

TEST(VerifyEndless, TheSampleMustBeOfTheSameLists) {
  const auto make = [](WeightPolicy policy) {
    return make_endless(Strategy::Online, {.replicas = {1, 1, 1}, .policy = policy},
                        chain_links(3));
  };
  EndlessSchedule endless = make(WeightPolicy::Stash);
  endless.sample = make(WeightPolicy::Latest).sample;
  const auto violations = verify_endless(endless, {.credits = 1});
  ASSERT_FALSE(violations.empty());
  EXPECT_EQ(violations.front().rule, "period");
}

TEST(VerifyEndless, ADamagedSampleIsReportedByItsRule) {
  EndlessSchedule endless = make_endless(
      Strategy::Online, {.replicas = {1, 1}, .policy = WeightPolicy::Current}, chain_links(2));
  auto& list = endless.sample.workers[1];
  std::erase_if(list, [](const schedule::Action& action) {
    return action.op == schedule::Op::SendBackward && action.micro_batch.value == 2;
  });
  const auto violations = verify_endless(endless, {.credits = 1});
  ASSERT_FALSE(violations.empty());
  EXPECT_EQ(violations.front().rule, "pairing");
}

}  // namespace
}  // namespace penstock::verify
