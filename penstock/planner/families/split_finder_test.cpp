#include "penstock/planner/families/split_finder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "penstock/planner/cost/named_models.h"
#include "penstock/planner/planner.h"
#include "penstock/planner/pricing/context.h"
#include "penstock/planner/testing/testing_graphs.h"

namespace penstock::planner {
namespace {

using plan::Strategy;
using schedule::WeightPolicy;
using testing_graphs::between;

Family random_family(Rng& rng) {
  const Strategy kinds[] = {Strategy::OneFOneB, Strategy::OneFOneBFlush, Strategy::TwoBuffered,
                            Strategy::GPipe,    Strategy::EagerOneFOneB, Strategy::ZbH1,
                            Strategy::ZbH2};
  Family family;
  family.strategy = kinds[rng.below(std::size(kinds))];
  family.policy = default_policy(family.strategy);
  const WeightPolicy others[] = {WeightPolicy::Latest, WeightPolicy::VerticalSync};
  if (family.strategy == Strategy::OneFOneB && rng.below(3) == 0)
    family.policy = others[rng.below(2)];
  family.straight = rng.below(3) != 0;
  family.may_be_single_stage = rng.below(2) == 0;
  if (family.strategy == Strategy::EagerOneFOneB) family.slack = between(rng, 1, 8);
  if (rng.below(3) == 0) family.links_per_cut = 2;
  return family;
}

struct Problem {
  profile::Profile profile;
  cluster::Cluster cluster;
};

Problem random_problem(Rng& rng) {
  profile::Profile profile =
      testing_graphs::random_profile(rng, static_cast<int>(between(rng, 2, 8)), 0.2);
  return {std::move(profile), testing_graphs::random_cluster(rng, 6)};
}

// Searches take bounds, or all, from those before them.
TEST(SplitFinder, FindsTheSameWhateverItWasAskedBefore) {
  int found = 0;
  int nothing = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Rng rng(seed);
    const Problem problem = random_problem(rng);
    PlanOptions options;
    options.memory_limit_bytes = between(rng, 50, 900);
    options.recompute = rng.below(2) == 0   ? Choice::Auto
                        : rng.below(2) == 0 ? Choice::Never
                                            : Choice::Always;
    options.use_all_workers = rng.below(4) == 0;
    if (rng.below(4) == 0) options.cost_model = cost_model_names()[rng.below(4)];
    if (rng.below(3) == 0) options.micro_batches = between(rng, 1, 12);
    const Context context(problem.profile, problem.cluster, options);
    SplitFinder experienced(context);
    for (int k = 0; k < 8; ++k) {
      const Family family = random_family(rng);
      const auto split = experienced.best(family);
      const auto fresh = SplitFinder(context).best(family);
      ASSERT_EQ(split.has_value(), fresh.has_value())
          << "seed " << seed << ' ' << to_string(family.strategy);
      (split ? found : nothing) += 1;
      if (!split) continue;
      EXPECT_EQ(split->micro_batches, fresh->micro_batches)
          << "seed " << seed << ' ' << to_string(family.strategy);
      EXPECT_EQ(split->split.stages, fresh->split.stages)
          << "seed " << seed << ' ' << to_string(family.strategy);
      EXPECT_EQ(split->split.places, fresh->split.places)
          << "seed " << seed << ' ' << to_string(family.strategy);
      EXPECT_EQ(split->split.recompute, fresh->split.recompute)
          << "seed " << seed << ' ' << to_string(family.strategy);
      EXPECT_EQ(split->split.strategy, fresh->split.strategy) << "seed " << seed;
    }
  }
  EXPECT_GT(found, 1'000);
  EXPECT_GT(nothing, 100);
}

TEST(SplitFinder, NoStraightSplitIsFasterThanTheBound) {
  int compared = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    const Problem problem = random_problem(rng);
    PlanOptions options;
    if (rng.below(2) == 0) options.memory_limit_bytes = between(rng, 200, 900);
    const Context context(problem.profile, problem.cluster, options);
    SplitFinder finder(context);
    Family family = random_family(rng);
    if (family.policy != WeightPolicy::Flush) continue;
    family.straight = true;
    family.may_be_single_stage = false;
    const double least_ns = finder.least_straight_ns(family);
    const auto found = finder.best(family);
    if (!found) continue;
    ++compared;
    const plan::Plan plan = price(context, found->split, found->micro_batches);
    EXPECT_GE(static_cast<double>(plan.prediction.bottleneck_ns), least_ns - 1)
        << "seed " << seed << ' ' << to_string(family.strategy);
  }
  EXPECT_GT(compared, 60);
}

TEST(SplitFinder, WhatATurnCutShortIsFoundInAnother) {
  int cut_short = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    const Problem problem = random_problem(rng);
    PlanOptions options;
    options.memory_limit_bytes = between(rng, 200, 900);
    const Context context(problem.profile, problem.cluster, options,
                          TimeLimit(std::chrono::hours(1)));
    const Family family = random_family(rng);
    const auto fresh = SplitFinder(context).best(family);
    SplitFinder finder(context);
    {
      const SearchTime::Turn turn(*context.time, 0);
      finder.best(family);
    }
    if (finder.num_cut_short() > 0) ++cut_short;
    EXPECT_FALSE(finder.out_of_time());  // there may be another turn
    finder.search_again();
    const auto found = finder.best(family);
    ASSERT_EQ(found.has_value(), fresh.has_value()) << "seed " << seed;
    if (!found) continue;
    EXPECT_EQ(found->split, fresh->split) << "seed " << seed;
    EXPECT_EQ(found->micro_batches, fresh->micro_batches) << "seed " << seed;
    EXPECT_EQ(found->optimality_gap, 0) << "seed " << seed;
  }
  EXPECT_GT(cut_short, 20);
}

TEST(SplitFinder, StraightStagesThatWereNotFoundInTimeAreNotRemembered) {
  const profile::Profile profile = testing_graphs::chain({30, 20, 10}, {9, 6, 1}, {10, 10, 10});
  const cluster::Cluster cluster = testing_graphs::flat_cluster(3, 1'000'000'000);
  const PlanOptions options;
  const Context context(profile, cluster, options, TimeLimit(std::chrono::nanoseconds(1)));
  SplitFinder finder(context);
  for (int k = 0; k < 2; ++k) EXPECT_THROW(finder.straight_stages(3, 3), OutOfTime);
}

// A message between the halves takes longer than all computation.
TEST(SplitFinder, ReplicasShareTheMessagesOfABoundary) {
  const profile::Profile profile =
      testing_graphs::chain(std::vector<int64_t>(4, 1'000), std::vector<int64_t>(4, 100),
                            std::vector<int64_t>(4, 10'000));
  const cluster::Cluster cluster = testing_graphs::flat_cluster(8, 1'000'000'000, 0, false);
  PlanOptions options{.strategy = Strategy::OneFOneB};
  const Context context(profile, cluster, options);
  SplitFinder finder(context);
  const auto splits = finder.best_over_links({.strategy = Strategy::OneFOneB});
  ASSERT_GE(splits.size(), 2U);
  const plan::Plan one_link = price(context, splits.front().split, 0);
  EXPECT_EQ(one_link.config(), "1-1");
  const PlanResult result = make_plan(profile, cluster, options);
  ASSERT_TRUE(result.plan) << result.reason;
  EXPECT_GT(result.plan->prediction.throughput_samples_per_s,
            2 * one_link.prediction.throughput_samples_per_s);
  EXPECT_THAT(result.plan->explanation.notes,
              testing::Contains(testing::HasSubstr("if one link carried")));
  options.cost_model = "sosp2019";
  const Context published(profile, cluster, options);
  SplitFinder of_the_paper(published);
  EXPECT_EQ(of_the_paper.best_over_links({.strategy = Strategy::OneFOneB}).size(), 1U);
}

}  // namespace
}  // namespace penstock::planner
