#include "penstock/simulate/expected_interval.h"

#include <gtest/gtest.h>

namespace penstock::simulate {
namespace {

plan::Plan pipeline(int stages, double spread) {
  plan::Plan plan;
  plan.strategy = plan::Strategy::OneFOneBFlush;
  plan.weights = plan::WeightPolicy::Flush;
  plan.micro_batches = 8;
  plan.prediction.compute_spread = spread;
  plan.prediction.compute_error = 0.01;
  plan.cluster = {.levels = {{.name = "process",
                              .count = stages,
                              .bandwidth_bytes_per_s = 1'000'000'000,
                              .by_reference = true}},
                  .device = {}};
  for (int s = 0; s < stages; ++s) {
    plan.stages.push_back(
        {.layers = {"layer" + std::to_string(s)}, .forward_ns = 100'000, .backward_ns = 200'000});
    if (s > 0) plan.links.push_back({StageId{s - 1}, StageId{s}, 10});
  }
  return plan;
}

TEST(ExpectedInterval, WorkersThatVaryWaitForEachOther) {
  EXPECT_EQ(share_left_by_variation(pipeline(4, 0)), 1);
  EXPECT_EQ(share_left_by_variation(pipeline(1, 0.3)), 1) << "nobody waits for one alone";
  const double little = *share_left_by_variation(pipeline(4, 0.05));
  const double much = *share_left_by_variation(pipeline(4, 0.4));
  EXPECT_LT(little, 1);
  EXPECT_GT(little, 0.95);
  EXPECT_LT(much, little - 0.05);
  EXPECT_GT(much, 0.4);
}

// However long a step is, what variation takes is counted or nothing is said.
TEST(ExpectedInterval, LongStepsAreNotTakenForEvenOnes) {
  plan::Plan plan = pipeline(4, 0.4);
  for (const int64_t micro_batches : {8, 400, 4'000, 30'000}) {
    plan.micro_batches = micro_batches;
    const auto share = share_left_by_variation(plan);
    ASSERT_TRUE(share) << micro_batches;
    EXPECT_LT(*share, 0.9) << micro_batches;
    EXPECT_GT(*share, 0.4) << micro_batches;
  }
  plan.micro_batches = 1'000'000;
  EXPECT_FALSE(share_left_by_variation(plan));
  EXPECT_EQ(expected_interval(plan, 1000), std::nullopt);
  plan = pipeline(1, 0.4);
  plan.strategy = plan::Strategy::DataParallel;
  plan.micro_batches = plan.stages[0].replicas = plan.cluster.levels[0].count = 5'000;
  ASSERT_TRUE(share_left_by_variation(plan));
  EXPECT_LT(*share_left_by_variation(plan), 0.6) << "the slowest of 5,000";
}

TEST(ExpectedInterval, VariationLowersTheLowerEndAlone) {
  const auto even = expected_interval(pipeline(4, 0), 1000);
  const auto varied = expected_interval(pipeline(4, 0.4), 1000);
  ASSERT_TRUE(even && varied);
  EXPECT_EQ(even->high, varied->high);
  EXPECT_LT(varied->low, even->low);
  EXPECT_TRUE(even->holds(1000));
}

TEST(ExpectedInterval, IsNotKnownWithoutAMeasuredError) {
  plan::Plan plan = pipeline(4, 0.1);
  plan.prediction.compute_error = 0;
  EXPECT_EQ(expected_interval(plan, 1000), std::nullopt);
}

}  // namespace
}  // namespace penstock::simulate
