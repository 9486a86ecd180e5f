#include "penstock/planner/time_limit.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "penstock/planner/planner.h"
#include "penstock/planner/testing/testing_graphs.h"

namespace penstock::planner {
namespace {

using std::chrono::milliseconds;
using testing::Contains;
using testing::HasSubstr;

/// Layer (y, x) reads its neighbours to the left and above: more cuts than can be listed.
profile::Profile grid(int side) {
  Rng rng(3);
  std::vector<graph::LayerNode> nodes;
  profile::Profile profile;
  for (int l = 0; l < side * side; ++l) {
    graph::LayerNode node{.name = fmt::format("l{}", l), .kind = "test", .inputs = {}};
    if (l % side > 0) node.inputs.push_back({LayerId{l - 1}, 0});
    if (l >= side) node.inputs.push_back({LayerId{l - side}, 0});
    if (l == 0) node.inputs.push_back(graph::ValueRef::model_input(0));
    nodes.push_back(std::move(node));
    profile.costs.push_back({.forward_ns = testing_graphs::between(rng, 100'000, 2'000'000),
                             .backward_ns = testing_graphs::between(rng, 200'000, 4'000'000),
                             .output_bytes = {testing_graphs::between(rng, 10'000, 4'000'000)},
                             .weight_bytes = testing_graphs::between(rng, 1000, 4'000'000),
                             .stash_bytes = testing_graphs::between(rng, 10'000, 4'000'000)});
  }
  profile.graph = graph::ModelGraph::build(1, std::move(nodes), {{LayerId{side * side - 1}, 0}});
  profile.model = "grid";
  profile.source = "test";
  profile.batch_size = 8;
  return profile;
}

/// Two racks of workers of which each pair has a device of its own.
cluster::Cluster uneven(int workers) {
  cluster::Cluster cluster = testing_graphs::flat_cluster(workers / 2, 12'000'000'000, 5'000);
  cluster.levels.push_back(
      {.name = "rack", .count = 2, .bandwidth_bytes_per_s = 1'250'000'000, .latency_ns = 20'000});
  for (int w = 0; w + 1 < workers; w += 2) {
    cluster.groups.push_back({.first = w,
                              .count = 2,
                              .device = {.name = fmt::format("d{}", w),
                                         .memory_bytes = 1'000'000'000 + int64_t{w} * 100'000'000,
                                         .speed = 0.5 + 0.05 * w}});
  }
  return cluster;
}

TEST(TimeLimit, ThereIsNoneUnlessItIsGiven) {
  EXPECT_FALSE(TimeLimit().exists());
  EXPECT_FALSE(TimeLimit(milliseconds(0)).exists());
  EXPECT_NO_THROW(TimeLimit().check());
  EXPECT_FALSE(TimeLimit().share(0.5).exists());
}

TEST(TimeLimit, IsOverAfterItsTime) {
  const TimeLimit limit(std::chrono::nanoseconds(1));
  while (!limit.is_over()) {
  }
  EXPECT_THROW(limit.check(), OutOfTime);
  EXPECT_EQ(limit.left().count(), 0);
  EXPECT_FALSE(limit.is_over_by(std::chrono::hours(1)));
  EXPECT_TRUE(limit.is_over_by(milliseconds(0)));
  EXPECT_FALSE(TimeLimit().is_over_by(milliseconds(0)));
  const TimeLimit hour(std::chrono::hours(1));
  EXPECT_FALSE(hour.is_over());
  EXPECT_LE(hour.share(0.5).left(), std::chrono::minutes(30));
  EXPECT_GT(hour.share(0.5).left(), std::chrono::minutes(29));
}

TEST(SearchTime, AnswersForTheTurn) {
  SearchTime time{TimeLimit(std::chrono::hours(1))};
  EXPECT_FALSE(time.in_turn());
  {
    const SearchTime::Turn turn(time, 0);
    EXPECT_TRUE(time.in_turn());
    EXPECT_TRUE(time.is_over());
    EXPECT_TRUE(time.is_over_by(std::chrono::minutes(1)));  // others wait
    EXPECT_THROW(time.check(), OutOfTime);
    EXPECT_FALSE(time.whole().is_over());
    time.lengthen_turn(std::chrono::hours(1));
    EXPECT_FALSE(time.is_over());
  }
  EXPECT_FALSE(time.is_over());
  EXPECT_GT(time.left(), std::chrono::minutes(59));
  const SearchTime::Turn turn(time, 0.5);
  EXPECT_LE(time.left(), std::chrono::minutes(30));
}

TEST(SearchTime, WithoutALimitHasNoTurns) {
  SearchTime time{TimeLimit()};
  const SearchTime::Turn turn(time, 0);
  EXPECT_FALSE(time.exists());
  EXPECT_FALSE(time.in_turn());
  EXPECT_FALSE(time.is_over());
}

TEST(TimeLimit, PlanningEndsWithThePlanFoundAndItsGap) {
  const profile::Profile profile = grid(20);
  PlanOptions options;
  options.time_limit = milliseconds(500);
  for (const cluster::Cluster& cluster :
       {uneven(32), testing_graphs::flat_cluster(32, 1'250'000'000, 20'000)}) {
    const auto begin = std::chrono::steady_clock::now();
    const PlanResult result = make_plan(profile, cluster, options);
    // Many times the limit and its slack, for machines that do other things at the same time.
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
    ASSERT_TRUE(result.plan) << result.reason;
    EXPECT_NO_THROW(plan::stage_of_layer(*result.plan, profile.graph));
    EXPECT_GT(result.plan->prediction.throughput_samples_per_s, 0);
    EXPECT_GT(result.plan->explanation.optimality_gap, 0);
    EXPECT_LT(result.plan->explanation.optimality_gap, 1);
    EXPECT_THAT(result.plan->explanation.notes,
                Contains(HasSubstr("ended at its time limit, 500 ms")));
  }
}

TEST(TimeLimit, WhatFitsNowhereIsNotCalledImpossible) {
  const profile::Profile profile = grid(20);
  PlanOptions options;
  options.time_limit = std::chrono::nanoseconds(1);
  options.memory_limit_bytes = 1'000'000;
  const PlanResult result = make_plan(profile, uneven(32), options);
  ASSERT_FALSE(result.plan);
  EXPECT_THAT(result.reason, HasSubstr("that does not mean that there is none"));
}

TEST(TimeLimit, AStrategyByNameSaysThatTimeWasShort) {
  PlanOptions options;
  options.time_limit = std::chrono::nanoseconds(1);
  options.strategy = plan::Strategy::ZbAuto;
  const PlanResult result =
      make_plan(grid(4), testing_graphs::flat_cluster(4, 1'250'000'000), options);
  ASSERT_FALSE(result.plan);
  EXPECT_THAT(result.reason, HasSubstr("none was found within 1 ns"));
  EXPECT_THAT(result.reason, HasSubstr("a longer time limit"));
}

/// One note for all whose turn did not come.
TEST(TimeLimit, FamiliesThatAreNotPlannedAreNamedTogether) {
  PlanOptions options;
  options.time_limit = milliseconds(500);
  options.compare = true;
  const PlanResult result = make_plan(grid(20), uneven(32), options);
  ASSERT_TRUE(result.plan) << result.reason;
  EXPECT_EQ(
      std::count_if(result.plan->explanation.notes.begin(), result.plan->explanation.notes.end(),
                    [](const std::string& note) {
                      return note.find("not planned within") != std::string::npos;
                    }),
      1);
  EXPECT_THAT(result.plan->explanation.notes, Contains(HasSubstr("zb-auto, ")));
}

TEST(TimeLimitProperty, ALongLimitChangesNothing) {
  Rng rng(11);
  for (int k = 0; k < 60; ++k) {
    const profile::Profile profile = testing_graphs::random_profile(
        rng, static_cast<int>(testing_graphs::between(rng, 2, 10)), 0.2);
    const cluster::Cluster cluster =
        k % 2 == 0 ? uneven(4) : testing_graphs::flat_cluster(4, 1'000'000'000, 3);
    PlanOptions options;
    const PlanResult without = make_plan(profile, cluster, options);
    options.time_limit = std::chrono::hours(1);
    const PlanResult with = make_plan(profile, cluster, options);
    EXPECT_EQ(with.plan, without.plan) << "case " << k;
    EXPECT_EQ(with.reason, without.reason);
  }
}

/// However little time there is, a plan is one that brute force could have found: not better than
/// the optimum, and not further from it than it says.
TEST(TimeLimitProperty, GapsAreTrue) {
  Rng rng(12);
  for (int k = 0; k < 60; ++k) {
    const profile::Profile profile = testing_graphs::random_profile(
        rng, static_cast<int>(testing_graphs::between(rng, 8, 14)), 0.1);
    PlanOptions options;
    options.strategy = plan::Strategy::OneFOneB;
    options.cost_model = "sosp2019";
    const cluster::Cluster cluster = uneven(6);
    const PlanResult best = make_plan(profile, cluster, options);
    ASSERT_TRUE(best.plan) << best.reason;
    options.time_limit = std::chrono::microseconds(testing_graphs::between(rng, 1, 3000));
    const PlanResult hurried = make_plan(profile, cluster, options);
    if (!hurried.plan) continue;
    EXPECT_GE(hurried.plan->prediction.bottleneck_ns, best.plan->prediction.bottleneck_ns);
    EXPECT_LE(static_cast<double>(hurried.plan->prediction.bottleneck_ns) *
                  (1 - hurried.plan->explanation.optimality_gap),
              static_cast<double>(best.plan->prediction.bottleneck_ns) + 1);
  }
}

}  // namespace
}  // namespace penstock::planner
