#include "penstock/job/adapted_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/util/error.h"
#include "tests/support/mutate.h"

namespace penstock::job {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Two stages of 1 ms each way on a worker each, in micro-batches of 8 samples.
plan::Plan two_stages() {
  plan::Plan plan;
  plan.model = "small";
  plan.strategy = plan::Strategy::OneFOneBFlush;
  plan.weights = plan::WeightPolicy::Flush;
  plan.micro_batch_size = 8;
  plan.micro_batches = 4;
  plan.depth = 2;
  plan.cluster = cluster::local_cluster(2, 10'000'000'000);
  for (int s = 0; s < 2; ++s) {
    plan.stages.push_back({.layers = {"fc" + std::to_string(s)},
                           .forward_ns = 1'000'000,
                           .backward_ns = 1'000'000,
                           .step_ns = 100,
                           .weight_bytes = 1'000,
                           .stash_bytes = 50'000,
                           .memory_bytes = 110'000,
                           .first_worker = s});
  }
  plan.links = {{StageId{0}, StageId{1}, 4'000}};
  plan.prediction.bottleneck_ns = 2'000'000;
  plan.prediction.throughput_samples_per_s = 3'200;
  plan.prediction.latency_ns = 10'000'000;
  plan.explanation.alternatives = {{.strategy = plan::Strategy::Serial, .config = "1"}};
  plan.explanation.notes = {"The slowest part is stage 0 (fc0), 2.00 ms per micro-batch."};
  return plan;
}

TEST(AdaptedPlan, IsThePlanItselfWhereNothingDiffers) {
  EXPECT_EQ(adapted_plan(two_stages(), {.mini_batch_size = 32}), two_stages());
}

TEST(AdaptedPlan, StagesWithTeamsHavePartsOfThePlacesWhereAsked) {
  plan::Plan given = two_stages();
  given.cluster = cluster::local_cluster(3, 10'000'000'000);
  given.stages[1].tensor = 2;
  EXPECT_EQ(adapted_plan(given, {.mini_batch_size = 32}), given);
  plan::Plan expected = given;
  expected.stages[1].sequence = true;
  EXPECT_EQ(adapted_plan(given, {.mini_batch_size = 32, .sequence = true}), expected);
}

TEST(AdaptedPlan, ReplicasThatCannotShareWeightsHaveCopies) {
  plan::Plan given = two_stages();
  given.strategy = plan::Strategy::DataParallel;
  given.links.clear();
  given.stages = {given.stages[0]};
  given.stages[0].replicas = 2;
  given.stages[0].shares_weights = true;
  given.stages[0].passes = {.first_bytes = 1'500, .last_bytes = 1'500, .only_bytes = 1'500};
  EXPECT_EQ(adapted_plan(given, {.mini_batch_size = 32}), given);
  const plan::Plan copies = adapted_plan(given, {.mini_batch_size = 32, .share_weights = false});
  EXPECT_FALSE(copies.stages[0].shares_weights);
  // Weights, gradients and momentum, and one micro-batch.
  EXPECT_EQ(copies.stages[0].memory_bytes, 3 * 1'000 + 50'000);
  const plan::Plan shared = adapted_plan(given, {.mini_batch_size = 32, .micro_batches = 2});
  EXPECT_TRUE(shared.stages[0].shares_weights);
  // Gradients with the pass, of which 500 grow with the micro-batch, and half of the momentum.
  EXPECT_EQ(shared.stages[0].memory_bytes, 1'000 + 2'000 + 500 + 100'000);
}

TEST(AdaptedPlan, MemoryOfTeamsIsThatOfEachMember) {
  plan::Plan given = two_stages();
  given.cluster = cluster::local_cluster(3, 10'000'000'000);
  const plan::Plan whole = adapted_plan(given, {.mini_batch_size = 128});
  given.stages[1].tensor = 2;
  const plan::Plan teams = adapted_plan(given, {.mini_batch_size = 128});
  EXPECT_GT(teams.stages[1].memory_bytes, given.stages[1].memory_bytes);
  for (size_t s = 0; s < 2; ++s)
    EXPECT_EQ(teams.stages[s].memory_bytes, whole.stages[s].memory_bytes) << s;
}

TEST(AdaptedPlan, HasAnIntervalWhereTheProfileKnowsItsError) {
  plan::Plan given = two_stages();
  given.prediction.throughput_low_samples_per_s = 1;
  given.prediction.throughput_high_samples_per_s = 2;
  const plan::Plan unknown = adapted_plan(given, {.mini_batch_size = 64, .micro_batches = 8});
  EXPECT_EQ(unknown.prediction.throughput_low_samples_per_s, 0);
  EXPECT_EQ(unknown.prediction.throughput_high_samples_per_s, 0);
  given.prediction.compute_error = 0.03;
  EXPECT_EQ(adapted_plan(given, {.mini_batch_size = 128}).prediction.throughput_high_samples_per_s,
            0)
      << "scaled in proportion";
  const plan::Plan known = adapted_plan(given, {.mini_batch_size = 64, .micro_batches = 8});
  EXPECT_LT(2'000, known.prediction.throughput_low_samples_per_s);
  EXPECT_LT(known.prediction.throughput_low_samples_per_s,
            known.prediction.throughput_samples_per_s);
  EXPECT_LT(known.prediction.throughput_samples_per_s,
            known.prediction.throughput_high_samples_per_s);
  EXPECT_LT(known.prediction.throughput_high_samples_per_s, 4'000);
}

// Its workers are members; the plan's figures are those of a member.
TEST(AdaptedPlan, ScalesAndPredictsTeamsAnew) {
  plan::Plan given = two_stages();
  given.cluster = cluster::local_cluster(4, 10'000'000'000);
  given.stages[0].tensor = 3;
  given.stages[0].team_bytes = 600;
  given.stages[1].first_worker = 3;
  const plan::Plan plan = adapted_plan(given, {.mini_batch_size = 128});
  EXPECT_EQ(plan.stages[0].team_bytes, 2'400);
  EXPECT_EQ(plan.stages[1].team_bytes, 0);
  EXPECT_EQ(plan.stages[0].forward_ns, 4'000'000);
  EXPECT_EQ(plan.stages[0].memory_bytes, 3 * 1'000 + 2 * 200'000 + 2 * 16'000);
  EXPECT_EQ(plan.stages[1].memory_bytes, 3 * 1'000 + 200'000 + 2 * 16'000);
  EXPECT_NEAR(plan.prediction.throughput_samples_per_s, 3'200, 1);
}

TEST(AdaptedPlan, ScalesAndPredictsAnew) {
  const plan::Plan plan = adapted_plan(two_stages(), {.mini_batch_size = 128});
  EXPECT_EQ(plan.micro_batch_size, 32);
  EXPECT_EQ(plan.stages[0].forward_ns, 4'000'000);
  EXPECT_EQ(plan.stages[0].step_ns, 100);
  EXPECT_EQ(plan.links[0].bytes, 16'000);
  EXPECT_EQ(plan.prediction.bottleneck_ns, 8'000'025) << "four micro-batches share a step";
  // Weights, gradients and momentum; two micro-batches in flight; a message each way.
  EXPECT_EQ(plan.stages[0].memory_bytes, 3 * 1'000 + 2 * 200'000 + 2 * 16'000);
  EXPECT_EQ(plan.stages[1].memory_bytes, 3 * 1'000 + 200'000 + 2 * 16'000);
  // Five rounds of 8 ms for four micro-batches of 32 samples.
  EXPECT_NEAR(plan.prediction.throughput_samples_per_s, 3'200, 1);
  EXPECT_EQ(plan.prediction.latency_ns, 0);
  EXPECT_THAT(plan.explanation.alternatives, IsEmpty());
  EXPECT_THAT(plan.explanation.notes, ElementsAre(HasSubstr("micro-batches of 8 samples")));
}

TEST(AdaptedPlan, PredictsOtherStepsAnew) {
  const plan::Plan plan = adapted_plan(two_stages(), {.mini_batch_size = 8, .micro_batches = 1});
  EXPECT_EQ(plan.micro_batch_size, 8);
  EXPECT_NEAR(plan.prediction.throughput_samples_per_s, 2'000, 1) << "one micro-batch at a time";
  EXPECT_EQ(plan.stages[0].memory_bytes, 3 * 1'000 + 50'000 + 2 * 4'000);
}

TEST(AdaptedPlan, HasNoMoreMicroBatchesThanSamples) {
  const plan::Plan plan = adapted_plan(two_stages(), {.mini_batch_size = 3});
  EXPECT_EQ(plan.micro_batches, 3);
  EXPECT_EQ(plan.micro_batch_size, 1);
}

TEST(AdaptedPlan, RefusesWeightsThatTheStrategyCannotKeep) {
  EXPECT_THAT(tests::message_of<ConfigError>([] {
                adapted_plan(two_stages(),
                             {.mini_batch_size = 32, .weights = plan::WeightPolicy::Stash});
              }),
              HasSubstr("1f1b-flush cannot run with --weights stash"));
}

}  // namespace
}  // namespace penstock::job
