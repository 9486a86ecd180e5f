#include "penstock/planner/pricing/round_trip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/planner/families/families.h"
#include "penstock/planner/planner.h"
#include "penstock/planner/testing/testing_graphs.h"
#include "penstock/simulate/simulate_plan.h"

namespace penstock::planner {
namespace {

using plan::Strategy;
using testing_graphs::between;
using testing_graphs::chain;
using testing_graphs::flat_cluster;
using testing_graphs::random_cluster;
using testing_graphs::random_profile;

std::optional<plan::Plan> possible_plan(const profile::Profile& profile,
                                        const cluster::Cluster& cluster, Strategy strategy,
                                        int64_t micro_batches, bool straight = false) {
  PlanOptions options;
  options.strategy = strategy;
  options.straight = straight;
  options.micro_batches = micro_batches;
  try {
    return make_plan(profile, cluster, options).plan;
  } catch (const ConfigError&) {  // no split of the kind
    return std::nullopt;
  }
}

}  // namespace

TEST(RoundTrip, OfOneMicroBatchIsTheStep) {
  const profile::Profile profile =
      chain({3'000, 5'000, 4'000}, {1'000, 1'000, 1'000}, {4'000, 2'000, 1'000});
  const cluster::Cluster cluster = flat_cluster(3, 1'000'000'000, 100);
  for (const Strategy strategy : {Strategy::OneFOneBFlush, Strategy::EagerOneFOneB}) {
    const auto plan = possible_plan(profile, cluster, strategy, 1, true);
    ASSERT_TRUE(plan.has_value());
    ASSERT_EQ(plan->stages.size(), 3U);
    // 12 us forward, twice that back; 4 us and 2 us on the wire, 100 ns of latency, there and back.
    const int64_t expected = 36'000 + 2 * (4'100 + 2'100);
    EXPECT_EQ(round_trip_ns(cluster::Topology(cluster), *plan), expected);
    EXPECT_EQ(simulate::simulate_plan(*plan, 5, {}).makespan_ns, 5 * expected);
  }
}

TEST(RoundTrip, LeavesOutTheWeightsGradientsOfASplitBackwardPass) {
  profile::Profile profile = chain({3'000, 5'000}, {1'000, 1'000}, {4'000, 2'000});
  profile.costs[0].backward_weight_ns = 2'000;
  profile.costs[1].backward_weight_ns = 4'000;
  const cluster::Cluster cluster = flat_cluster(2, 1'000'000'000);
  const auto plan = possible_plan(profile, cluster, Strategy::ZbH1, 1);
  ASSERT_TRUE(plan.has_value());
  ASSERT_EQ(plan->stages.size(), 2U);
  EXPECT_EQ(round_trip_ns(cluster::Topology(cluster), *plan), 24'000 - 6'000 + 2 * 4'000);
  // The first stage ends with its weights' gradient.
  EXPECT_EQ(simulate::simulate_plan(*plan, 1, {}).makespan_ns, 24'000 - 4'000 + 2 * 4'000);
}

TEST(RoundTrip, NoStepOfAnyKindIsShorter) {
  Rng rng(20);
  int compared = 0;
  int close = 0;
  for (int trial = 0; trial < 120; ++trial) {
    const profile::Profile profile = random_profile(rng, static_cast<int>(between(rng, 2, 9)), 0.1);
    const cluster::Cluster cluster = random_cluster(rng, 8);
    const auto kinds = synchronous_pipelines();
    const Strategy strategy = kinds[rng.below(kinds.size())];
    const auto plan = possible_plan(profile, cluster, strategy, between(rng, 1, 4));
    if (!plan) continue;
    constexpr int64_t kSteps = 3;
    const int64_t least_ns = kSteps * round_trip_ns(cluster::Topology(cluster), *plan);
    const int64_t ns = simulate::simulate_plan(*plan, kSteps, {}).makespan_ns;
    EXPECT_LE(least_ns, ns) << trial << ": " << to_string(strategy) << " " << plan->config();
    ++compared;
    if (2 * least_ns > ns) ++close;
  }
  EXPECT_GT(compared, 60);
  EXPECT_GT(close, 20);
}

}  // namespace penstock::planner
