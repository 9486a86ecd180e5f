#include "penstock/planner/pricing/estimate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "penstock/planner/planner.h"
#include "penstock/planner/pricing/prediction.h"
#include "penstock/planner/pricing/pricing.h"
#include "penstock/planner/testing/testing_graphs.h"

namespace penstock::planner {
namespace {

using plan::Strategy;
using testing::Contains;
using testing::HasSubstr;
using testing_graphs::between;
using testing_graphs::chain;
using testing_graphs::flat_cluster;

profile::Profile heavy_layers(int layers, int64_t forward_ns = 1'000'000) {
  const auto count = static_cast<size_t>(layers);
  return chain(std::vector<int64_t>(count, forward_ns), std::vector<int64_t>(count, 1'000'000),
               std::vector<int64_t>(count, 1'000'000));
}

plan::Plan straight_plan(int workers, const std::string& strategy, int64_t micro_batches,
                         int layers, std::optional<int64_t> slack = {}) {
  PlanOptions options;
  options.strategy = plan::parse_strategy_choice(strategy);
  options.straight = true;
  options.micro_batches = micro_batches;
  options.slack = slack;
  PlanResult result =
      make_plan(heavy_layers(layers), flat_cluster(workers, 1'000'000'000'000), options);
  EXPECT_TRUE(result.plan.has_value()) << result.reason;
  plan::validate(*result.plan);
  return *result.plan;
}

// One layer per stage, and what a generator wants of worker_of_replica.
Split split_by_layer(Strategy kind, const std::vector<bool>& recompute, int replicas, int chunks) {
  Split split;
  split.strategy = kind;
  split.policy = default_policy(kind);
  for (size_t s = 0; s < recompute.size(); ++s) {
    split.stages.push_back({LayerId{static_cast<int32_t>(s)}});
    split.places.push_back({static_cast<int>(s) * replicas, replicas});
  }
  split.recompute = recompute;
  split.worker_of_replica =
      schedule::with_placement(kind, {.replicas = split.replicas()}, chunks).worker_of_replica;
  return split;
}

plan::Plan estimated(const Context& context, const Split& split, int64_t micro_batches) {
  Priced priced = price_parts(context, split, micro_batches);
  estimate(context, split, stage_memories(context, split, priced.cut_bytes), priced.plan);
  return std::move(priced.plan);
}

}  // namespace

TEST(Estimate, WorkersWithSeveralStagesAreSimulatedWhereTwoStepsOfThemAreShort) {
  for (const std::string strategy : {"zb-v", "interleaved"}) {
    const plan::Plan plan = straight_plan(128, strategy, 32, 512);
    EXPECT_EQ(plan.num_workers(), 128);
    EXPECT_THAT(plan.explanation.notes, Not(Contains(HasSubstr("too large to be simulated"))))
        << strategy;
    for (const plan::Stage& stage : plan.stages) EXPECT_GT(stage.memory_bytes, 0);
  }
}

TEST(Estimate, LongStepsOfWorkersWithSeveralStagesStillHaveTheirMemory) {
  const profile::Profile profile = heavy_layers(256);
  const cluster::Cluster cluster = flat_cluster(128, 1'000'000'000'000);
  const PlanOptions options;
  const Context context(profile, cluster, options);
  for (const Strategy kind : {Strategy::Interleaved, Strategy::ZbV, Strategy::DualPipeV}) {
    const plan::Plan plan =
        price(context, split_by_layer(kind, std::vector<bool>(256), 1, 2), 4'000);
    plan::validate(plan);
    EXPECT_THAT(plan.explanation.notes, Contains(HasSubstr("too large to be simulated")));
    // Two stages' weights, gradients and momenta, then activations of 2p stages, more or less.
    EXPECT_GT(plan.stages[0].memory_bytes, 6'000'000 + 128 * 1'000'000);
    EXPECT_LT(plan.stages[0].memory_bytes, 20'000'000 + 3 * 128 * 1'000'000);
    EXPECT_LT(plan.prediction.idle_share, 0.05);
  }
}

TEST(Estimate, InterleavedWithOneStagePerWorkerHasNoHosts) {
  const profile::Profile profile = heavy_layers(4);
  const cluster::Cluster cluster = flat_cluster(4, 1'000'000'000'000);
  const PlanOptions options;
  const Context context(profile, cluster, options);
  Split split = split_by_layer(Strategy::Interleaved, std::vector<bool>(4), 1, 2);
  split.worker_of_replica.clear();
  for (int s = 0; s < 4; ++s) split.places[static_cast<size_t>(s)] = {s, 1};
  const plan::Plan plan = price(context, split, 1'000'000);
  EXPECT_THAT(plan.explanation.notes, Contains(HasSubstr("too large to be simulated")));
  for (const plan::Stage& stage : plan.stages) EXPECT_GT(stage.memory_bytes, 0);
}

// Against the simulated peaks, on plans small enough for both.
TEST(Estimate, MemoryOfWorkersWithSeveralStagesIsABoundAndNotAFarOne) {
  double looseness = 0;
  int cases = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Rng rng(seed);
    const Strategy kinds[] = {Strategy::Interleaved,   Strategy::ZbV,     Strategy::DualPipeV,
                              Strategy::Chimera,       Strategy::VHalf,   Strategy::VMin,
                              Strategy::InterleavedZb, Strategy::DualPipe};
    const Strategy kind = kinds[seed % 8];
    const bool is_loop = traits(kind).takes_chunks();
    const int chunks = is_loop ? static_cast<int>(between(rng, 2, 3)) : traits(kind).chunks;
    const int stages = static_cast<int>(between(rng, 2, 5)) * (is_loop ? chunks : 2);
    const int copies = static_cast<int>(between(rng, 1, 2));
    std::vector<bool> recompute;
    for (int s = 0; s < stages; ++s) recompute.push_back(rng.below(4) == 0);
    const Split split =
        split_by_layer(kind, recompute, traits(kind).replicas_per_copy() * copies, chunks);
    const profile::Profile profile = heavy_layers(stages);
    const cluster::Cluster cluster = flat_cluster(split.num_workers(), 1'000'000'000'000);
    const PlanOptions options;
    const Context context(profile, cluster, options);
    const int64_t micro_batches = between(rng, 1, 30);
    const plan::Plan simulated = price(context, split, micro_batches);
    const plan::Plan bound = estimated(context, split, micro_batches);
    for (size_t s = 0; s < simulated.stages.size(); ++s) {
      EXPECT_GE(bound.stages[s].memory_bytes, simulated.stages[s].memory_bytes)
          << "seed " << seed << " stage " << s;
      looseness += static_cast<double>(bound.stages[s].memory_bytes) /
                   static_cast<double>(simulated.stages[s].memory_bytes);
      ++cases;
    }
  }
  EXPECT_LT(looseness / cases, 1.5);
}

TEST(Estimate, NoGradientGoesBackBeforeTheFirstWeights) {
  const auto plan_of = [](int64_t first_weights) {
    const std::vector<int64_t> equal(4, 1'000'000);
    PlanOptions options;
    options.strategy = Strategy::ModelParallel;
    options.straight = true;
    return *make_plan(chain(equal, {first_weights, 0, 1'000'000, 1'000'000}, equal),
                      flat_cluster(2, 1'000'000'000), options)
                .plan;
  };
  const plan::Plan without = plan_of(0);
  const plan::Plan with = plan_of(1);
  ASSERT_EQ(without.stages.front().layers.size(), 2);
  EXPECT_EQ(without.stages, plan_of(0).stages);
  EXPECT_EQ(without.links.front().gradient_bytes, 0);
  EXPECT_EQ(without.links.front().bytes, 1'000'000);
  EXPECT_FALSE(with.links.front().gradient_bytes.has_value());
  EXPECT_DOUBLE_EQ(without.prediction.bytes_per_sample.front(),
                   with.prediction.bytes_per_sample.front() / 2);
  // A message takes 1 ms, the passes 4 layers of 3 ms.
  const double saved_s = 1 / with.prediction.throughput_samples_per_s -
                         1 / without.prediction.throughput_samples_per_s;
  EXPECT_NEAR(saved_s * static_cast<double>(with.micro_batch_size), 0.001, 1e-5);
  EXPECT_EQ(without.stages[1].memory_bytes, with.stages[1].memory_bytes);
}

TEST(Estimate, SlackTakesMemory) {
  // Too many workers and micro-batches per step to be simulated.
  const plan::Plan none = straight_plan(256, "eager-1f1b", 4'000, 256, 0);
  const plan::Plan eight = straight_plan(256, "eager-1f1b", 4'000, 256, 8);
  ASSERT_THAT(none.explanation.notes, Contains(HasSubstr("too large to be simulated")));
  ASSERT_THAT(eight.explanation.notes, Contains(HasSubstr("too large to be simulated")));
  EXPECT_EQ(eight.stages[0].memory_bytes - none.stages[0].memory_bytes, 8 * 255 * 1'000'000);
}

TEST(Estimate, RecomputationIsWork) {
  const profile::Profile profile = heavy_layers(4);
  const cluster::Cluster cluster = flat_cluster(4, 1'000'000'000'000);
  const PlanOptions options;
  const Context context(profile, cluster, options);
  Split split;
  split.strategy = Strategy::ModelParallel;
  split.policy = schedule::WeightPolicy::Flush;
  for (int s = 0; s < 4; ++s) {
    split.stages.push_back({LayerId{s}});
    split.places.push_back({s, 1});
  }
  split.recompute = {true, true, true, true};
  const plan::Plan simulated = price(context, split, 1);
  const plan::Plan rough = estimated(context, split, 1);
  EXPECT_NEAR(
      rough.prediction.throughput_samples_per_s / simulated.prediction.throughput_samples_per_s, 1,
      0.01);
  EXPECT_NEAR(rough.prediction.idle_share, simulated.prediction.idle_share, 0.001);
  // all but the last run their forward pass again while they wait
  EXPECT_NEAR(rough.prediction.idle_share, 1 - 16.0 / (4 * 13), 0.001);
}

}  // namespace penstock::planner
