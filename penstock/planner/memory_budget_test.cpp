#include "penstock/planner/memory_budget.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "penstock/planner/planner.h"
#include "penstock/planner/testing/testing_graphs.h"

namespace penstock::planner {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing_graphs::between;

TEST(MemoryBudget, RefusesWhatWouldPassItAndTakesNothingThen) {
  MemoryBudget budget(100);
  budget.take(60);
  EXPECT_THROW(budget.take(41), OutOfMemory);
  EXPECT_EQ(budget.held(), 60);
  EXPECT_EQ(budget.refusals(), 1);
  budget.take(40);
  budget.give_back(70);
  EXPECT_EQ(budget.held(), 30);
  EXPECT_EQ(budget.peak(), 100);
}

TEST(MemoryBudget, OfNothingIsNone) {
  MemoryBudget budget;
  EXPECT_NO_THROW(budget.take(INT64_MAX / 2));
}

TEST(HeldBytes, AreGivenBackAtTheEnd) {
  MemoryBudget budget(100);
  {
    HeldBytes held(&budget);
    held.set(size_t{80});
    EXPECT_THROW(held.add(size_t{30}), OutOfMemory);
    EXPECT_EQ(budget.held(), 80);
    held.set(size_t{10});
    EXPECT_EQ(budget.held(), 10);
  }
  EXPECT_EQ(budget.held(), 0);
}

TEST(HeldBytes, CountAVectorTwiceWhileItGrows) {
  MemoryBudget budget(100'000);
  HeldBytes held(&budget);
  std::vector<int64_t> items;
  const auto fill = [&] {
    for (;;) {
      make_room(items, held);
      items.push_back(0);
    }
  };
  EXPECT_THROW(fill(), OutOfMemory);
  EXPECT_EQ(budget.held(), static_cast<int64_t>(items.capacity() * sizeof(int64_t)));
  EXPECT_GT(budget.held(), 30'000);
}

/// `width` chains side by side that meet at the end: too many cuts to list.
profile::Profile side_by_side(int width, int depth) {
  Rng rng(7);
  std::vector<graph::LayerNode> nodes;
  profile::Profile profile;
  const auto add = [&](std::vector<graph::ValueRef> inputs) {
    nodes.push_back(
        {.name = fmt::format("l{}", nodes.size()), .kind = "test", .inputs = std::move(inputs)});
    profile.costs.push_back({.forward_ns = between(rng, 100'000, 2'000'000),
                             .backward_ns = between(rng, 200'000, 4'000'000),
                             .output_bytes = {between(rng, 10'000, 400'000)},
                             .weight_bytes = between(rng, 1'000, 4'000'000),
                             .stash_bytes = between(rng, 10'000, 400'000)});
  };
  std::vector<graph::ValueRef> ends;
  for (int x = 0; x < width; ++x) {
    for (int y = 0; y < depth; ++y)
      add({y == 0 ? graph::ValueRef::model_input(0)
                  : graph::ValueRef{LayerId{static_cast<int32_t>(nodes.size()) - 1}, 0}});
    ends.push_back({LayerId{static_cast<int32_t>(nodes.size()) - 1}, 0});
  }
  add(ends);
  profile.graph = graph::ModelGraph::build(1, std::move(nodes),
                                           {{LayerId{static_cast<int32_t>(width) * depth}, 0}});
  profile.model = "side by side";
  profile.source = "test";
  profile.batch_size = 8;
  return profile;
}

TEST(MemoryBudget, PlanningEndsWithThePlanFoundItsGapAndTheKindsCutShort) {
  const profile::Profile profile = side_by_side(6, 12);
  PlanOptions options{.strategy = plan::Strategy::OneFOneB};
  const cluster::Cluster cluster = testing_graphs::flat_cluster(8, 1'250'000'000, 20'000);
  options.memory_budget_bytes = 4'000'000;
  const PlanResult result = make_plan(profile, cluster, options);
  ASSERT_TRUE(result.plan) << result.reason;
  EXPECT_NO_THROW(plan::stage_of_layer(*result.plan, profile.graph));
  EXPECT_GT(result.plan->explanation.optimality_gap, 0);
  EXPECT_LT(result.plan->explanation.optimality_gap, 1);
  EXPECT_THAT(result.plan->explanation.notes,
              Contains(HasSubstr("met its memory budget, 4.00 MB, and was cut short for 1f1b")));
}

TEST(MemoryBudget, TooSmallForAnyPlanIsNotCalledImpossible) {
  PlanOptions options;
  options.memory_budget_bytes = 100;
  const PlanResult result =
      make_plan(side_by_side(2, 4), testing_graphs::flat_cluster(4, 1'250'000'000), options);
  ASSERT_FALSE(result.plan);
  EXPECT_THAT(result.reason, HasSubstr("none was found within a memory budget of 100 B"));
  EXPECT_THAT(result.reason, HasSubstr("that does not mean that there is none"));
}

TEST(MemoryBudget, KindsThatItLeavesOutAreNamed) {
  PlanOptions options;
  options.compare = true;
  const profile::Profile profile = side_by_side(4, 8);
  options.memory_budget_bytes = 400'000;
  const PlanResult result =
      make_plan(profile, testing_graphs::flat_cluster(6, 1'250'000'000), options);
  if (!result.plan) {
    EXPECT_THAT(result.reason, HasSubstr("memory budget"));
    return;
  }
  EXPECT_THAT(result.plan->explanation.notes, Contains(HasSubstr("memory budget")));
}

struct BudgetCounts {
  int compared = 0;
  int refused = 0;
  int improved = 0;
  int worse = 0;          // than with a quarter of the budget
  double most_worse = 0;  // by what share of the bottleneck
};

void compare_budgets(const profile::Profile& profile, const cluster::Cluster& cluster,
                     PlanOptions options, BudgetCounts& counts) {
  double before_ns = 0;
  for (int64_t budget = 2'000; budget <= 600'000'000; budget *= 4) {
    options.memory_budget_bytes = budget;
    const PlanResult result = make_plan(profile, cluster, options);
    if (!result.plan) {
      EXPECT_THAT(result.reason, HasSubstr("memory budget"));
      EXPECT_EQ(before_ns, 0) << "budget " << budget;
      ++counts.refused;
      continue;
    }
    EXPECT_NO_THROW(plan::stage_of_layer(*result.plan, profile.graph));
    const auto now_ns = static_cast<double>(result.plan->prediction.bottleneck_ns);
    if (before_ns > 0) {
      ++counts.compared;
      counts.improved += now_ns < before_ns ? 1 : 0;
      if (now_ns > before_ns) {
        ++counts.worse;
        counts.most_worse = std::max(counts.most_worse, now_ns / before_ns - 1);
        fmt::print("budget {}: {:.2f} % longer\n", budget, 100 * (now_ns / before_ns - 1));
      }
    }
    before_ns = now_ns;
  }
}

/// Of 24 random models on random clusters.
BudgetCounts counted_budgets(uint64_t seed) {
  Rng rng(seed);
  BudgetCounts counts;
  for (int k = 0; k < 24; ++k) {
    SCOPED_TRACE(fmt::format("seed {}, case {}", seed, k));
    const profile::Profile profile =
        k % 4 == 0 ? side_by_side(static_cast<int>(between(rng, 3, 6)), 8)
                   : testing_graphs::random_profile(rng, static_cast<int>(between(rng, 8, 24)),
                                                    k % 2 == 0 ? 0.05 : 0.2);
    const cluster::Cluster cluster = testing_graphs::random_cluster(rng, 8);
    PlanOptions options{.strategy = plan::Strategy::OneFOneB, .cost_model = "sosp2019"};
    options.straight = k % 3 == 0;
    compare_budgets(profile, cluster, options, counts);
  }
  EXPECT_GT(counts.refused, 20);
  EXPECT_GT(counts.improved, 3);
  return counts;
}

/// With a larger budget no plan of this seed is slower: a search goes through what it finds with a
/// smaller one.
TEST(MemoryBudgetProperty, MoreNeverGivesAWorsePlan) { EXPECT_EQ(counted_budgets(21).worse, 0); }

/// Of others a few are. The bounds are those of what was seen (docs/planner.md), not of what is
/// proven: the larger search is not made to go through what the smaller one finds.
TEST(MemoryBudgetProperty, MoreSeldomGivesAWorsePlan) {
  const char* asked = std::getenv("PENSTOCK_TRIALS");
  if (asked == nullptr) GTEST_SKIP() << "a minute and more: PENSTOCK_TRIALS=40 says how many seeds";
  BudgetCounts all;
  for (int seed = 1; seed <= std::atoi(asked); ++seed) {
    const BudgetCounts counts = counted_budgets(static_cast<uint64_t>(seed));
    all.compared += counts.compared;
    all.improved += counts.improved;
    all.worse += counts.worse;
    all.most_worse = std::max(all.most_worse, counts.most_worse);
  }
  fmt::print("{} compared: {} shorter, {} longer, by at most {:.2f} %\n", all.compared,
             all.improved, all.worse, 100 * all.most_worse);
  EXPECT_LE(all.worse * 100, all.compared);
  EXPECT_LE(all.most_worse, 0.1);
}

/// Whatever the budget, the optimum is no further away than the gap says.
TEST(MemoryBudgetProperty, GapsAreTrue) {
  Rng rng(22);
  for (int k = 0; k < 40; ++k) {
    const profile::Profile profile =
        testing_graphs::random_profile(rng, static_cast<int>(between(rng, 8, 20)), 0.1);
    PlanOptions options{.strategy = plan::Strategy::OneFOneB, .cost_model = "sosp2019"};
    const cluster::Cluster cluster = testing_graphs::random_cluster(rng, 6);
    const PlanResult best = make_plan(profile, cluster, options);
    ASSERT_TRUE(best.plan) << best.reason;
    options.memory_budget_bytes = between(rng, 2'000, 2'000'000);
    const PlanResult hurried = make_plan(profile, cluster, options);
    if (!hurried.plan) continue;
    EXPECT_GE(hurried.plan->prediction.bottleneck_ns, best.plan->prediction.bottleneck_ns);
    EXPECT_LE(static_cast<double>(hurried.plan->prediction.bottleneck_ns) *
                  (1 - hurried.plan->explanation.optimality_gap),
              static_cast<double>(best.plan->prediction.bottleneck_ns) + 1);
  }
}

TEST(MemoryBudgetProperty, ALargeBudgetChangesNothing) {
  Rng rng(23);
  for (int k = 0; k < 30; ++k) {
    const profile::Profile profile =
        testing_graphs::random_profile(rng, static_cast<int>(between(rng, 2, 10)), 0.2);
    const cluster::Cluster cluster = testing_graphs::random_cluster(rng, 4);
    PlanOptions options;
    const PlanResult with = make_plan(profile, cluster, options);
    options.memory_budget_bytes = 0;
    const PlanResult without = make_plan(profile, cluster, options);
    EXPECT_EQ(with.plan, without.plan) << "case " << k;
    EXPECT_EQ(with.reason, without.reason);
  }
}

}  // namespace
}  // namespace penstock::planner
