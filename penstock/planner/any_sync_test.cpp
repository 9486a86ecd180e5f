// The method of adding gradients that makes the fastest plan, against each method by name.
#include "penstock/planner/any_sync.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "penstock/planner/cost/distinct_syncs.h"
#include "penstock/planner/planner.h"
#include "penstock/planner/testing/testing_graphs.h"

namespace penstock::planner {
namespace {

using plan::GradientSync;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing_graphs::between;
using testing_graphs::random_profile;

/// Machines of a few devices, some described, some with servers beside them.
cluster::Cluster random_machines(Rng& rng) {
  cluster::Cluster cluster = testing_graphs::flat_cluster(
      static_cast<int>(between(rng, 1, 4)), between(rng, 1, 40) * 100'000'000, between(rng, 0, 5));
  cluster.levels.push_back({.name = "rack",
                            .count = static_cast<int>(between(rng, 1, 4)),
                            .bandwidth_bytes_per_s = between(rng, 1, 20) * 100'000'000,
                            .latency_ns = between(rng, 0, 20)});
  testing_graphs::add_machines(rng, cluster);
  if (rng.below(4) == 0)
    cluster.cpu_machines = {.count = static_cast<int>(between(rng, 1, 2)),
                            .bandwidth_bytes_per_s = 1'000'000'000};
  return cluster;
}

double rate_of(const PlanResult& result) {
  return result.plan ? result.plan->prediction.throughput_samples_per_s : 0;
}

constexpr double kAsFast = 0.995;

// The search knows the slowest part, the simulator all stalls: so of two optima the one with the
// cheaper sums may be a little slower, simulated.
TEST(AnySync, IsAsFastAsEachMethodByName) {
  constexpr double kHardlySlower = 0.97;
  int rounding = 0;
  int pruned = 0;
  int compared = 0;
  int slower = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    Rng rng(seed);
    const profile::Profile profile = random_profile(rng, static_cast<int>(between(rng, 1, 5)), 0.2);
    const cluster::Cluster cluster = random_machines(rng);
    PlanOptions options{.sync = std::nullopt};
    options.strategy =
        plan::parse_strategy_choice(std::vector<std::string>{"auto", "dp", "1f1b"}[rng.below(3)]);
    const PlanResult any = make_plan(profile, cluster, options);
    if (!any.plan) continue;
    rounding += any.plan->sync == GradientSync::Ordered ? 0 : 1;
    pruned += syncs_to_search(cluster, FloatType::Float32).size() < distinct_syncs(cluster).size();
    for (const GradientSync sync : distinct_syncs(cluster)) {
      options.sync = sync;
      const double by_name = rate_of(make_plan(profile, cluster, options));
      EXPECT_GE(rate_of(any), kHardlySlower * by_name) << "seed " << seed << to_string(sync);
      slower += rate_of(any) < kAsFast * by_name;
      ++compared;
    }
  }
  EXPECT_LE(100 * slower, compared);
  EXPECT_GT(rounding, 20);
  EXPECT_GT(pruned, 50);
}

TEST(AnySync, EveryFamilyStandsWithTheSumsThatAreBestForIt) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Rng rng(seed);
    const profile::Profile profile = random_profile(rng, static_cast<int>(between(rng, 2, 4)), 0.2);
    const cluster::Cluster cluster = random_machines(rng);
    PlanOptions options{.sync = std::nullopt, .compare = true};
    const PlanResult any = make_plan(profile, cluster, options);
    if (!any.plan) continue;
    for (const GradientSync sync : distinct_syncs(cluster)) {
      options.sync = sync;
      options.strategy = plan::Strategy::DataParallel;
      const double data_parallel = rate_of(make_plan(profile, cluster, options));
      options.strategy.reset();
      const auto row = std::find_if(
          any.plan->explanation.alternatives.begin(), any.plan->explanation.alternatives.end(),
          [](const auto& one) { return one.strategy == plan::Strategy::DataParallel; });
      ASSERT_NE(row, any.plan->explanation.alternatives.end());
      EXPECT_GE(row->throughput_samples_per_s, kAsFast * data_parallel)
          << "seed " << seed << ", " << to_string(sync);
    }
  }
}

TEST(AnySync, SaysWhatTheBitsOfOneThreadCost) {
  const profile::Profile profile =
      testing_graphs::chain({400'000, 30'000}, {300'000, 8'000'000}, {10'000, 100});
  PlanOptions options{.strategy = plan::Strategy::DataParallel, .sync = std::nullopt};
  const plan::Plan fast = *make_plan(profile, testing_graphs::two_servers(), options).plan;
  EXPECT_EQ(fast.sync, GradientSync::Hierarchical);
  EXPECT_THAT(fast.explanation.notes, Contains(HasSubstr("By ordered, which keeps the bits")));
  options.sync = GradientSync::Ordered;
  const plan::Plan exact = *make_plan(profile, testing_graphs::two_servers(), options).plan;
  EXPECT_THAT(exact.explanation.notes, Not(Contains(HasSubstr("differ by rounding"))));
}

TEST(AnySync, KeepsTheBitsWhereTheyCostNothing) {
  // Hardly any weights.
  const profile::Profile profile = testing_graphs::chain({400'000, 30'000}, {8, 8}, {10, 10});
  const PlanOptions options{.strategy = plan::Strategy::DataParallel, .sync = std::nullopt};
  const plan::Plan plan = *make_plan(profile, testing_graphs::two_servers(), options).plan;
  EXPECT_EQ(plan.sync, GradientSync::Ordered);
  EXPECT_EQ(plan.num_workers(), 4);
}

TEST(AnySync, ThreadsOfOneProcessAddInOneWay) {
  const cluster::Cluster threads = testing_graphs::flat_cluster(4, 1'000'000'000, 0, true);
  EXPECT_EQ(syncs_to_search(threads, FloatType::Float32), std::vector{GradientSync::Ordered});
}

/// The papers' own price of data parallelism stands beside ours: 2 (m-1) W/B over m.
TEST(AnySync, ComparisonsNameThePapersBaseline) {
  const profile::Profile profile = testing_graphs::chain({1'000}, {1'000'000}, {10});
  const PlanOptions options{.sync = std::nullopt, .compare = true};
  const plan::Plan plan =
      *make_plan(profile, testing_graphs::flat_cluster(4, 1'000'000'000), options).plan;
  // 2 * 3 * 1 MB at 1 GB/s over 4 replicas: 1.5 ms per micro-batch.
  EXPECT_THAT(plan.explanation.notes,
              Contains(HasSubstr("data parallelism over 4 workers makes 667 samples/s")));
}

}  // namespace
}  // namespace penstock::planner
