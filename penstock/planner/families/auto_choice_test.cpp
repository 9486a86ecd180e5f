// The turns of "auto" against families one after the other, in equal time: that is counted here, so
// that it is the same on every machine.
#include "penstock/planner/families/auto_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <tuple>
#include <vector>

#include "penstock/planner/planner.h"
#include "penstock/planner/testing/testing_graphs.h"

namespace penstock::planner {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using testing_graphs::between;

// About what a search computes between two looks at the clock.
constexpr microseconds kPerLook{20};

double samples_per_s_of(const PlanResult& result) {
  return result.plan ? result.plan->prediction.throughput_samples_per_s : 0;
}

cluster::Cluster uneven_workers(Rng& rng, int workers) {
  cluster::Cluster cluster =
      testing_graphs::flat_cluster(workers, between(rng, 1, 40) * 100'000'000, 5'000);
  for (int w = 0; w < workers; ++w) {
    cluster.groups.push_back(
        {.first = w,
         .count = 1,
         .device = {.name = "d", .speed = 0.5 + 0.1 * static_cast<double>(between(rng, 0, 9))}});
  }
  return cluster;
}

struct TurnsCase {
  profile::Profile profile;
  cluster::Cluster cluster;
};

// Even seeds: equal devices, odd ones: unequal devices, on which each search takes long.
TurnsCase turns_case(uint64_t seed) {
  Rng rng(seed);
  TurnsCase made{
      .profile = testing_graphs::random_profile(rng, static_cast<int>(between(rng, 12, 24)), 0.1),
      .cluster = {}};
  made.cluster = seed % 2 == 1 ? uneven_workers(rng, 8)
                               : testing_graphs::flat_cluster(8, 4'000'000'000, 5'000);
  return made;
}

double with_turns(const TurnsCase& one, nanoseconds limit) {
  const SearchClock::Counting counting(kPerLook);
  PlanOptions options;
  options.time_limit = limit;
  return samples_per_s_of(make_plan(one.profile, one.cluster, options));
}

// As before there were turns: the optimum, then each family to its end, as the table lists them.
double in_table_order(const TurnsCase& one, nanoseconds limit) {
  const SearchClock::Counting counting(kPerLook);
  const PlanOptions options;
  const Context context(one.profile, one.cluster, options, TimeLimit(limit).share(0.85));
  SplitFinder finder(context);
  Families families(context, finder);
  double best = 0;
  const auto take = [&](const PlanResult& result) {
    best = std::max(best, samples_per_s_of(result));
  };
  try {
    take(families.plan({.may_be_single_stage = true}, false));
    std::vector<plan::Strategy> all{plan::Strategy::Serial, plan::Strategy::DataParallel,
                                    plan::Strategy::Hybrid, plan::Strategy::OneFOneB};
    std::ranges::copy(synchronous_pipelines(), std::back_inserter(all));
    for (const plan::Strategy strategy : all) take(families.faster(strategy, 1.005 * best));
  } catch (const SearchEnded&) {
  }
  return best;
}

TEST(AutoTurns, FindWhatFamiliesInTableOrderHaveNoTimeFor) {
  for (const auto& [seed, limit, times] :
       {std::tuple(0, seconds(5), 2.0), std::tuple(1, seconds(1), 1.5),
        std::tuple(13, seconds(1), 1.8), std::tuple(26, seconds(1), 2.0)}) {
    const TurnsCase one = turns_case(static_cast<uint64_t>(seed));
    EXPECT_GT(with_turns(one, limit), times * in_table_order(one, limit)) << "seed " << seed;
  }
}

TEST(AutoTurns, AreNoSlowerThanFamiliesInTableOrder) {
  int faster = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const TurnsCase one = turns_case(seed);
    const double turns = with_turns(one, seconds(1));
    const double table = in_table_order(one, seconds(1));
    EXPECT_GE(turns, 0.995 * table) << "seed " << seed;
    if (turns > 1.1 * table) ++faster;
  }
  EXPECT_GE(faster, 2);
}

// What a search had found is not lost where the next one that could be faster is cut short.
TEST(AutoTurns, TheAnswerIsTheBestThatWasFound) {
  const SearchClock::Counting counting(kPerLook);
  int answers = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const TurnsCase one = turns_case(seed);
    for (const int64_t limit : {2, 5, 10, 20, 40, 80, 160, 320}) {
      PlanOptions options;
      if (seed % 4 < 3) options.strategy = plan::Strategy::OneFOneB;
      options.time_limit = milliseconds(limit);
      const PlanResult result = make_plan(one.profile, one.cluster, options);
      if (!result.plan) continue;
      ++answers;
      EXPECT_GE(samples_per_s_of(result), 0.994 * result.improvements.back().samples_per_s)
          << "seed " << seed << ", " << limit << " ms";
    }
  }
  EXPECT_GE(answers, 200);
}

}  // namespace
}  // namespace penstock::planner
