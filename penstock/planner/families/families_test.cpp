#include "penstock/planner/families/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "penstock/planner/families/hybrid.h"
#include "penstock/planner/families/layer_runs.h"
#include "penstock/planner/planner.h"
#include "penstock/planner/testing/testing_graphs.h"
#include "penstock/schedule/placement.h"
#include "penstock/simulate/simulate_plan.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::planner {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing_graphs::between;
using testing_graphs::chain;
using testing_graphs::flat_cluster;
using testing_graphs::vgg_like;

// 1 ms forward, 2 ms backward; 1 kB of weights and of output each.
profile::Profile equal_layers(size_t count) {
  return chain(std::vector<int64_t>(count, 1'000'000), std::vector<int64_t>(count, 1'000),
               std::vector<int64_t>(count, 1'000));
}

plan::Plan compared(const profile::Profile& profile, const cluster::Cluster& cluster,
                    PlanOptions options = {}) {
  options.compare = true;
  PlanResult result = make_plan(profile, cluster, options);
  EXPECT_TRUE(result.plan.has_value()) << result.reason;
  plan::validate(*result.plan);
  return *result.plan;
}

const plan::Alternative& row(const plan::Plan& plan, const std::string& strategy) {
  for (const plan::Alternative& alternative : plan.explanation.alternatives) {
    if (to_string(alternative.strategy) == strategy) return alternative;
  }
  throw std::runtime_error("no row for " + strategy);
}

TEST(Compare, ListsEveryFamilyWithAReason) {
  const plan::Plan plan = compared(vgg_like(), flat_cluster(4, 1'000'000'000));
  std::vector<plan::Strategy> names;
  for (const plan::Alternative& alternative : plan.explanation.alternatives) {
    names.push_back(alternative.strategy);
    EXPECT_FALSE(alternative.note.empty()) << alternative.strategy;
    EXPECT_TRUE(alternative.throughput_samples_per_s == 0 ||
                alternative.bytes_per_sample.size() == 1)
        << alternative.strategy;
  }
  EXPECT_THAT(names, ElementsAreArray(plan::training_strategies()));
  const plan::Alternative& chosen = row(plan, std::string(to_string(plan.strategy)));
  EXPECT_THAT(chosen.note, HasSubstr("The slowest part is worker"));
  EXPECT_EQ(chosen.throughput_samples_per_s, plan.prediction.throughput_samples_per_s);
  EXPECT_THAT(row(plan, "1f1b").note, HasSubstr("its slowest part takes longer"));
  EXPECT_THAT(row(plan, "dp").note, HasSubstr("gradient synchronisation"));
}

TEST(Compare, SaysWhenDataParallelismIsBest) {
  const plan::Plan plan = compared(vgg_like(), flat_cluster(4, 1'000'000'000'000));
  EXPECT_EQ(plan.strategy, plan::Strategy::DataParallel);
  EXPECT_THAT(row(plan, "dp").note, HasSubstr("data parallelism is best"));
}

TEST(Compare, SynchronousPipelinesOfAsManyWorkersHaveTheSameStep) {
  const profile::Profile profile = equal_layers(16);
  PlanOptions options;
  options.strategy = plan::Strategy::Interleaved;
  for (const auto& [workers, copies] : {std::pair{8, 1}, std::pair{4, 2}}) {
    plan::Plan plan = *make_plan(profile, flat_cluster(workers, 1'000'000'000'000), options).plan;
    for (plan::Stage& stage : plan.stages) stage.replicas = copies;
    plan.worker_of_replica =
        schedule::loop_placement(static_cast<int>(plan.stages.size()), workers, copies);
    const plan::Plan chunked =
        price_placed_plan(profile, flat_cluster(workers * copies, 1'000'000'000'000), plan.stages,
                          plan.worker_of_replica, options);
    // A line of as many workers with one stage each, and as many copies.
    std::vector<std::vector<std::string>> stages(static_cast<size_t>(workers));
    for (size_t l = 0; l < 16; ++l)
      stages[l * static_cast<size_t>(workers) / 16].push_back("l" + std::to_string(l));
    PlanOptions flushed;
    flushed.strategy = plan::Strategy::OneFOneBFlush;
    const plan::Plan straight =
        price_plan(profile, flat_cluster(workers * copies, 1'000'000'000'000), stages,
                   std::vector<int>(static_cast<size_t>(workers), copies), flushed);
    EXPECT_EQ(chunked.num_workers(), 8);
    EXPECT_EQ(chunked.micro_batches, straight.micro_batches);
    EXPECT_EQ(straight.micro_batches, 4 * workers * copies);
  }
}

// Steps that nobody asked for are not too long to be simulated.
TEST(Families, LongUsualStepsAreShortened) {
  constexpr int kWorkers = 256;
  const profile::Profile profile = equal_layers(2 * kWorkers);
  PlanOptions options;
  options.strategy = plan::Strategy::ZbV;
  options.straight = true;
  const PlanResult result = make_plan(profile, flat_cluster(kWorkers, 1'000'000'000'000), options);
  ASSERT_TRUE(result.plan) << result.reason;
  EXPECT_LT(result.plan->micro_batches, 4 * kWorkers);
  options.micro_batches = 4 * kWorkers;
  EXPECT_THAT(make_plan(profile, flat_cluster(kWorkers, 1'000'000'000'000), options).reason,
              HasSubstr("too many actions"));
}

TEST(Families, UsualStepsAreNoLongerThanAUsersMayBe) {
  const profile::Profile profile = equal_layers(8);
  PlanOptions options;
  options.strategy = plan::Strategy::OneFOneBFlush;
  const PlanResult result = make_plan(profile, flat_cluster(300'000, 1'000'000'000'000), options);
  ASSERT_TRUE(result.plan) << result.reason;
  EXPECT_LE(result.plan->micro_batches, kMaxMicroBatchesPerStep);
}

// Whatever crosses between stages: messages cover a part of what passes need, or nothing of it.
TEST(Families, WhatPassesNeedCountsAgainstTheMemory) {
  for (const int64_t output_bytes : {0, 1'000}) {
    profile::Profile profile = equal_layers(24);
    for (size_t l = 0; l < profile.costs.size(); ++l) {
      profile.costs[l].working_bytes = 300 + 40 * static_cast<int64_t>(l % 5);
      profile.costs[l].output_bytes = {output_bytes};
    }
    PlanOptions options;
    options.strategy = plan::Strategy::OneFOneB;
    options.recompute = Choice::Never;
    const cluster::Cluster cluster = flat_cluster(4, 1'000'000'000'000);
    options.memory_limit_bytes = 1'000;
    const PlanResult refused = make_plan(profile, cluster, options);
    ASSERT_FALSE(refused.plan.has_value());
    const size_t at = refused.reason.find(" bytes, split");
    ASSERT_NE(at, std::string::npos) << refused.reason;
    options.memory_limit_bytes =
        std::stoll(refused.reason.substr(refused.reason.rfind('(', at) + 1));
    for (int more = 0; more < 20; ++more) {
      const PlanResult found = make_plan(profile, cluster, options);
      ASSERT_TRUE(found.plan.has_value()) << found.reason;
      for (const plan::Stage& stage : found.plan->stages) {
        EXPECT_GE(stage.working_bytes, output_bytes == 0 ? 300 : 0);
        EXPECT_LE(stage.memory_bytes, options.memory_limit_bytes);
      }
      *options.memory_limit_bytes += 97;
    }
  }
}

/// A convolution, a ReLU that saves its output, and a convolution that saves the same as its input.
profile::Profile saving_layers() {
  profile::Profile profile = equal_layers(4);
  for (size_t l = 0; l < profile.costs.size(); ++l) {
    const bool is_relu = l % 2 == 1;
    profile.costs[l].output_bytes = {1'000};
    profile.costs[l].stash_bytes = is_relu ? 1'000 : 0;
    profile.costs[l].working_bytes = 2'500;
    profile.costs[l].saves = profile::saves_of(profile.graph.layers()[l], !is_relu, is_relu);
  }
  return profile;
}

TEST(Families, AStageKeepsACopyOfWhatTheStageBeforeSavesToo) {
  PlanOptions options;
  options.strategy = plan::Strategy::OneFOneBFlush;
  options.straight = true;
  options.micro_batches = 4;
  const auto planned = [&](const profile::Profile& profile, Choice recompute) {
    options.recompute = recompute;
    const PlanResult result = make_plan(profile, flat_cluster(2, 1'000'000'000'000), options);
    EXPECT_TRUE(result.plan) << result.reason;
    EXPECT_EQ(result.plan->stages[1].layers, (std::vector<std::string>{"l2", "l3"}));
    return *result.plan;
  };
  profile::Profile profile = saving_layers();
  EXPECT_EQ(planned(profile, Choice::Never).stages[0].stash_bytes, 1'000);
  EXPECT_EQ(planned(profile, Choice::Never).stages[1].stash_bytes, 2'000);
  EXPECT_EQ(planned(profile, Choice::Always).stages[1].stash_bytes, 1'000) << "it keeps the input";
  for (profile::LayerCost& cost : profile.costs) cost.saves = {};
  EXPECT_EQ(planned(profile, Choice::Never).stages[1].stash_bytes, 1'000) << "nothing is known";
}

TEST(Families, GradientsThatCrossCountOnceWithTheMessages) {
  PlanOptions options;
  options.strategy = plan::Strategy::OneFOneBFlush;
  options.straight = true;
  options.micro_batches = 4;
  profile::Profile profile = saving_layers();
  const auto memory = [&] {
    return make_plan(profile, flat_cluster(2, 1'000'000'000'000), options).plan->stages[0];
  };
  const plan::Stage with = memory();
  // Of the 2,500 bytes, 1,000 arrive and are on their way to the stage, or on it, in any case.
  EXPECT_EQ(with.working_bytes, 2'500 - 1'000);
  for (profile::LayerCost& cost : profile.costs) cost.working_bytes = 900;
  const plan::Stage less = memory();
  EXPECT_EQ(less.working_bytes, 0);
  EXPECT_EQ(with.memory_bytes - less.memory_bytes, 1'500);
}

TEST(Families, TheFirstStageHasWhatTheNormOfTiedGradientsNeedsBeyondItsStashes) {
  PlanOptions options;
  options.strategy = plan::Strategy::OneFOneBFlush;
  options.straight = true;
  options.micro_batches = 4;
  profile::Profile profile = equal_layers(4);
  std::vector<graph::LayerNode> nodes = profile.graph.layers();
  nodes[3].ties = {{.parameter = 0, .owner = {LayerId{1}, 0}}};
  profile.graph = graph::ModelGraph::build(1, std::move(nodes), {{LayerId{3}, 0}});
  for (const size_t layer : {1, 3}) profile.costs[layer].weight_bytes = 70'000;
  profile.costs[3].tied_bytes = {70'000};
  const PlanResult result = make_plan(profile, flat_cluster(2, 1'000'000'000'000), options);
  ASSERT_TRUE(result.plan) << result.reason;
  ASSERT_EQ(result.plan->stages.size(), 2);
  // The other stage's gradient, the sum, and that in double precision; two micro-batches are in
  // flight, whose memory is free by then, as is that of the message.
  const plan::Stage& first = result.plan->stages[0];
  EXPECT_EQ(first.working_bytes,
            4 * 70'000 - 2 * first.stash_bytes - 2 * result.plan->links.at(0).bytes);
  EXPECT_EQ(result.plan->stages[1].working_bytes, 0);
}

TEST(Families, WorkersWithSeveralStagesSayWhatWouldDo) {
  const profile::Profile profile = equal_layers(24);
  PlanOptions options;
  options.recompute = Choice::Never;
  options.micro_batches = 8;
  for (const auto strategy :
       {plan::Strategy::Interleaved, plan::Strategy::InterleavedZb, plan::Strategy::ZbV,
        plan::Strategy::DualPipeV, plan::Strategy::DualPipe, plan::Strategy::Chimera}) {
    options.strategy = strategy;
    options.memory_limit_bytes = 1'000;
    const PlanResult refused = make_plan(profile, flat_cluster(4, 1'000'000'000'000), options);
    ASSERT_FALSE(refused.plan.has_value());
    const size_t at = refused.reason.find(" bytes);");
    ASSERT_NE(at, std::string::npos) << refused.reason;
    options.memory_limit_bytes =
        std::stoll(refused.reason.substr(refused.reason.rfind('(', at) + 1));
    EXPECT_TRUE(make_plan(profile, flat_cluster(4, 1'000'000'000'000), options).plan.has_value())
        << refused.reason;
    --*options.memory_limit_bytes;
    EXPECT_FALSE(make_plan(profile, flat_cluster(4, 1'000'000'000'000), options).plan.has_value())
        << refused.reason;
  }
}

// Each worker of zb-h2 may begin the next step as early as it ended this one, unless all wait for
// each other in between.
// Where time is short, what takes longest to plan keeps no quick one from its turn.
TEST(Families, OfEqualBoundsThoseComeLastThatTakeLongest) {
  const profile::Profile profile = chain({100, 100}, {10, 10}, {10, 10});
  const cluster::Cluster cluster = flat_cluster(2, 1'000'000'000);
  const PlanOptions options;
  const Context context(profile, cluster, options);
  SplitFinder finder(context);
  const Families families(context, finder);
  const std::vector<plan::Strategy> order = families.by_bound(
      std::vector{plan::Strategy::ZbAuto, plan::Strategy::Serial, plan::Strategy::ZbH1,
                  plan::Strategy::Chimera, plan::Strategy::DataParallel});
  EXPECT_EQ(order,
            (std::vector{plan::Strategy::Chimera, plan::Strategy::DataParallel,
                         plan::Strategy::ZbH1, plan::Strategy::ZbAuto, plan::Strategy::Serial}));
}

TEST(Families, NormsMakeWorkersWaitAtEachStep) {
  const profile::Profile profile = equal_layers(8);
  PlanOptions options;
  options.strategy = plan::Strategy::ZbH2;
  options.straight = true;
  options.micro_batches = 32;
  const cluster::Cluster cluster = flat_cluster(8, 1'000'000'000'000);
  const plan::Plan without = *make_plan(profile, cluster, options).plan;
  options.global_norm = true;
  const plan::Plan with = *make_plan(profile, cluster, options).plan;
  EXPECT_LT(without.prediction.idle_share, 0.01);
  // (p-1) F of 32 x 3 F and that, where F = I = W.
  EXPECT_NEAR(with.prediction.idle_share, 7.0 / (96 + 7), 0.005);
  EXPECT_EQ(reprice(with, profile, cluster, "penstock", true).prediction.throughput_samples_per_s,
            with.prediction.throughput_samples_per_s);
  EXPECT_EQ(reprice(with, profile, cluster, "penstock").prediction.throughput_samples_per_s,
            without.prediction.throughput_samples_per_s);
}

TEST(Compare, ChangesNothingOfThePlanItself) {
  plan::Plan with = compared(vgg_like(), flat_cluster(4, 1'000'000'000));
  plan::Plan without = *make_plan(vgg_like(), flat_cluster(4, 1'000'000'000), {}).plan;
  with.explanation.alternatives = without.explanation.alternatives = {};
  with.explanation.notes = without.explanation.notes = {};
  EXPECT_EQ(with, without);
}

TEST(Compare, FamiliesThatDoNotFitSayWhatTheyNeed) {
  PlanOptions options;
  options.memory_limit_bytes = 45'000;
  const plan::Plan plan = compared(chain({100, 100}, {10'000, 10'000}, {10, 10}),
                                   flat_cluster(2, 1'000'000'000), options);
  EXPECT_EQ(row(plan, "dp").throughput_samples_per_s, 0);
  EXPECT_THAT(row(plan, "dp").note, HasSubstr("no dp plan for 2 workers fits into"));
}

TEST(Compare, TwoBufferedNeedsStepsAsLongAsThePipeline) {
  PlanOptions options;
  options.mini_batch = 1;
  const plan::Plan plan = compared(chain({100, 100, 100}, {1, 1, 1}, {1, 1, 1}),
                                   flat_cluster(3, 1'000'000'000'000), options);
  EXPECT_EQ(row(plan, "2bw").throughput_samples_per_s, 0);
  EXPECT_FALSE(row(plan, "2bw").note.empty());
}

TEST(Compare, MemoryAndLatencyAreThoseOfThePlanByName) {
  const plan::Plan plan = compared(vgg_like(), flat_cluster(3, 1'000'000'000));
  for (const plan::Alternative& alternative : plan.explanation.alternatives) {
    if (alternative.strategy == plan::Strategy::Hybrid || alternative.throughput_samples_per_s == 0)
      continue;
    PlanOptions options;
    options.strategy = alternative.strategy;
    const plan::Plan own = *make_plan(vgg_like(), flat_cluster(3, 1'000'000'000), options).plan;
    if (own.config() != alternative.config) continue;
    EXPECT_EQ(own.prediction.throughput_samples_per_s, alternative.throughput_samples_per_s)
        << alternative.strategy;
    EXPECT_EQ(own.prediction.latency_ns, alternative.latency_ns) << alternative.strategy;
    EXPECT_EQ(own.prediction.idle_share, alternative.idle_share) << alternative.strategy;
  }
}

TEST(LayerRuns, BalancedIsTheLeastPossibleMaximum) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Rng rng(seed);
    const int n = static_cast<int>(between(rng, 1, 8));
    const profile::Profile profile = testing_graphs::random_profile(rng, n, 0.2);
    const cluster::Cluster cluster = flat_cluster(2, 1);
    const PlanOptions options;
    const Context context(profile, cluster, options);
    const LayerRuns runs(context);
    const int begin = static_cast<int>(between(rng, 0, n - 1));
    const int parts = static_cast<int>(between(rng, 1, n - begin));
    const std::vector<int> ends = runs.balanced(begin, parts);
    ASSERT_EQ(static_cast<int>(ends.size()), parts) << "seed " << seed;
    ASSERT_EQ(ends.back(), n);
    const auto largest = [&](const std::vector<int>& cuts) {
      int64_t most = 0;
      int from = begin;
      for (const int end : cuts) {
        EXPECT_GT(end, from) << "seed " << seed;
        most = std::max(most, runs.compute_ns(from, end));
        from = end;
      }
      return most;
    };
    int64_t best = INT64_MAX;
    for (unsigned mask = 0; mask < 1u << (n - begin - 1); ++mask) {
      std::vector<int> cuts;
      for (int i = 0; i < n - begin - 1; ++i) {
        if ((mask >> i & 1) != 0) cuts.push_back(begin + i + 1);
      }
      cuts.push_back(n);
      if (static_cast<int>(cuts.size()) == parts) best = std::min(best, largest(cuts));
    }
    EXPECT_EQ(largest(ends), best) << "seed " << seed;
  }
}

TEST(LayerRuns, CheapestIsTheLeastOfAllCuts) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Rng rng(seed);
    const int n = static_cast<int>(between(rng, 1, 9));
    const profile::Profile profile = testing_graphs::random_profile(rng, n, 0.2);
    const cluster::Cluster cluster = flat_cluster(2, 1);
    const PlanOptions options;
    const Context context(profile, cluster, options);
    const LayerRuns runs(context);
    const int64_t dearest_ns = between(rng, 1, runs.compute_ns(0, n) + 1);
    std::vector<double> cut_ns(1, 1e18);  // before the first layer there is no cut
    for (int end = 1; end <= n; ++end)
      cut_ns.push_back(static_cast<double>(between(rng, 0, dearest_ns)));
    cut_ns.back() = 1e18;
    const int parts = static_cast<int>(between(rng, 1, n));
    const auto slowest = [&](const std::vector<int>& ends) {
      double most = 0;
      int begin = 0;
      for (const int end : ends) {
        EXPECT_GT(end, begin) << "seed " << seed;
        most = std::max(
            most, static_cast<double>(runs.compute_ns(begin, end) + runs.step_ns(begin, end)));
        if (end < n) most = std::max(most, cut_ns[static_cast<size_t>(end)]);
        begin = end;
      }
      EXPECT_EQ(begin, n);
      return most;
    };
    double best = HUGE_VAL;
    for (unsigned mask = 0; mask < 1u << (n - 1); ++mask) {
      std::vector<int> ends;
      for (int i = 0; i + 1 < n; ++i) {
        if ((mask >> i & 1) != 0) ends.push_back(i + 1);
      }
      ends.push_back(n);
      if (static_cast<int>(ends.size()) == parts) best = std::min(best, slowest(ends));
    }
    const std::vector<int> ends = runs.cheapest(parts, cut_ns);
    ASSERT_EQ(static_cast<int>(ends.size()), parts) << "seed " << seed;
    EXPECT_EQ(slowest(ends), best) << "seed " << seed;
  }
}

TEST(LayerRuns, CutBytesAreThoseOfTheSplit) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Rng rng(seed);
    const profile::Profile profile = testing_graphs::random_profile(rng, 6, 0.3);
    const cluster::Cluster cluster = flat_cluster(2, 1);
    const PlanOptions options;
    const Context context(profile, cluster, options);
    const CutStates states(profile.graph, context.layers);
    const LayerRuns runs(context);
    for (int s = 0; s < states.size(); ++s) {
      int count = 0;
      while (count < 6 && states.contains(s, LayerId{count})) ++count;
      bool is_prefix = true;
      for (int l = count; l < 6; ++l) is_prefix = is_prefix && !states.contains(s, LayerId{l});
      if (is_prefix) {
        EXPECT_EQ(runs.cut_bytes(count), states.cut_bytes(s)) << "seed " << seed;
      }
    }
  }
}

TEST(Hybrid, ReplicatesTheConvolutionsAndCutsOffTheDenseLayers) {
  const profile::Profile profile = vgg_like();
  const cluster::Cluster cluster = flat_cluster(8, 1'000'000'000);
  const PlanOptions options;
  const Context context(profile, cluster, options);
  const std::vector<Split> splits = hybrid_splits(context, 3);
  ASSERT_FALSE(splits.empty());
  EXPECT_THAT(splits[0].replicas(), ElementsAre(7, 1));
  EXPECT_EQ(splits[0].stages[1], std::vector<LayerId>{LayerId{2}});
  const plan::Plan plan = compared(profile, cluster);
  EXPECT_EQ(row(plan, "hybrid").config, "7-1");
  EXPECT_EQ(row(plan, "hybrid").micro_batches, 7);
  EXPECT_EQ(row(plan, "hybrid").weights, plan::WeightPolicy::Flush);
  EXPECT_LT(row(plan, "hybrid").throughput_samples_per_s, plan.prediction.throughput_samples_per_s);
}

TEST(Hybrid, NeedsTwoWorkersAndTwoLayers) {
  const PlanOptions options;
  const cluster::Cluster one = flat_cluster(1, 1);
  const cluster::Cluster two = flat_cluster(2, 1);
  const profile::Profile layers = vgg_like();
  const profile::Profile layer = chain({1}, {1}, {1});
  EXPECT_TRUE(hybrid_splits(Context(layers, one, options), 3).empty());
  EXPECT_TRUE(hybrid_splits(Context(layer, two, options), 3).empty());
}

profile::Profile eight_layers() {
  return chain(std::vector<int64_t>(8, 1000), std::vector<int64_t>(8, 10),
               std::vector<int64_t>(8, 5));
}

PlanResult planned(const profile::Profile& profile, const cluster::Cluster& cluster,
                   std::string_view strategy, PlanOptions options = {}) {
  options.strategy = plan::parse_strategy_choice(strategy);
  return make_plan(profile, cluster, options);
}

// p workers, m micro-batches, F = 1000, B = 2000 per layer; idle time as docs/schedules.md has it.
TEST(SynchronousPipelines, AreSimulatedNotPricedByFormula) {
  const cluster::Cluster cluster = flat_cluster(2, 1'000'000'000'000'000);
  PlanOptions options;
  options.micro_batches = 8;
  options.chunks = 4;
  const plan::Plan interleaved = *planned(eight_layers(), cluster, "interleaved", options).plan;
  EXPECT_EQ(interleaved.config(), "2x4 chunks");
  EXPECT_EQ(interleaved.worker_of_replica, (std::vector<int>{0, 1, 0, 1, 0, 1, 0, 1}));
  // A step of 8 x 12,000 ns, and (p-1)(F+B)/v = 12,000/4 of idle time.
  EXPECT_NEAR(interleaved.prediction.throughput_samples_per_s, 8e9 / (8 * 12'000 + 12'000 / 4),
              8e9 / 99'000 * 0.01);
  options.chunks = {};
  const plan::Plan flush = *planned(eight_layers(), cluster, "1f1b-flush", options).plan;
  EXPECT_NEAR(flush.prediction.throughput_samples_per_s, 8e9 / (8 * 12'000 + 12'000),
              8e9 / 108'000 * 0.01);
  const plan::Plan zb = *planned(eight_layers(), cluster, "zb-h1", options).plan;
  // (p-1)(F+I-W) = 4000 + 4000 - 4000.
  EXPECT_NEAR(zb.prediction.throughput_samples_per_s, 8e9 / (8 * 12'000 + 4'000),
              8e9 / 100'000 * 0.01);
  EXPECT_EQ(zb.stages[0].backward_weight_ns, zb.stages[0].backward_ns / 2);
  EXPECT_THAT(zb.explanation.notes, testing::Contains(HasSubstr("half the backward pass")));
}

TEST(SynchronousPipelines, LayersThatMakeAllGradientsAtOnceAreNotGuessedAt) {
  profile::Profile profile = eight_layers();
  profile.costs[0].backward_weight_ns = 700;
  const plan::Plan zb = *planned(profile, flat_cluster(2, 1'000'000'000'000'000), "zb-h1").plan;
  EXPECT_EQ(zb.stages[0].backward_weight_ns, 700) << "the others' 0 was measured";
  EXPECT_EQ(zb.stages[1].backward_weight_ns, 0);
  EXPECT_THAT(zb.explanation.notes,
              testing::Not(testing::Contains(HasSubstr("half the backward pass"))));
}

TEST(SynchronousPipelines, EveryKindGivesAPlanThatItsScheduleRuns) {
  const cluster::Cluster cluster = flat_cluster(4, 1'000'000'000'000, 50);
  for (const plan::Strategy strategy : synchronous_pipelines()) {
    const PlanResult result = planned(eight_layers(), cluster, to_string(strategy));
    ASSERT_TRUE(result.plan.has_value()) << strategy << ": " << result.reason;
    const plan::Plan& plan = *result.plan;
    EXPECT_NO_THROW(plan::validate(plan)) << strategy;
    EXPECT_EQ(plan.strategy, strategy);
    EXPECT_EQ(plan.weights, plan::WeightPolicy::Flush) << strategy;
    EXPECT_EQ(plan::parse_plan(plan::to_json(plan), "again"), plan) << strategy;
    // Half the cluster's throughput at the least, and never more than all of it.
    EXPECT_GT(plan.prediction.throughput_samples_per_s, 0.5 * 4e9 / 24'000) << strategy;
    EXPECT_LE(plan.prediction.throughput_samples_per_s, 1.0001 * 4e9 / 24'000) << strategy;
    EXPECT_GT(plan.prediction.latency_ns, 0) << strategy;
    const plan::Plan again = reprice(plan, eight_layers(), cluster, "penstock");
    EXPECT_EQ(again.prediction.throughput_samples_per_s, plan.prediction.throughput_samples_per_s)
        << strategy;
    EXPECT_EQ(again.stages, plan.stages) << strategy;
    EXPECT_EQ(again.worker_of_replica, plan.worker_of_replica) << strategy;
  }
}

// The prediction of schedules that are written down runs some steps only.
TEST(SynchronousPipelines, ThroughputIsThatOfTheWholeRun) {
  const cluster::Cluster cluster = flat_cluster(4, 1'000'000'000'000, 300);
  for (const char* strategy : {"interleaved", "zb-v", "chimera", "zb-h2"}) {
    const plan::Plan plan = *planned(eight_layers(), cluster, strategy).plan;
    const int64_t steps = ceil_div(256, plan.micro_batches);
    const simulate::Result whole = simulate::simulate_plan(plan, steps, {});
    EXPECT_NEAR(plan.prediction.throughput_samples_per_s, whole.throughput_samples_per_s,
                1e-3 * whole.throughput_samples_per_s)
        << strategy;
    EXPECT_NEAR(plan.prediction.idle_share, whole.idle_share, 1e-3) << strategy;
  }
}

TEST(SynchronousPipelines, LatencyChangesTheOrder) {
  const auto rate = [](const std::string& strategy, int64_t latency_ns) {
    PlanOptions options;
    options.micro_batches = 16;
    options.straight = strategy != "interleaved";
    return planned(eight_layers(), flat_cluster(4, 1'000'000'000'000'000, latency_ns), strategy,
                   options)
        .plan->prediction.throughput_samples_per_s;
  };
  // A stage's forward takes 2000 ns. Without latency interleaving wins and GPipe is as good as
  // 1F1B; at half a forward strict 1F1B, which has no slack, falls behind both GPipe and eager
  // 1F1B.
  EXPECT_GT(rate("interleaved", 0), 1.02 * rate("1f1b-flush", 0));
  EXPECT_NEAR(rate("gpipe", 0), rate("1f1b-flush", 0), 0.001 * rate("gpipe", 0));
  EXPECT_GT(rate("gpipe", 1000), 1.05 * rate("1f1b-flush", 1000));
  EXPECT_GT(rate("eager-1f1b", 1000), 1.05 * rate("1f1b-flush", 1000));
  EXPECT_NEAR(rate("eager-1f1b", 1000), rate("gpipe", 1000), 0.02 * rate("gpipe", 1000));
}

TEST(SynchronousPipelines, AutoTakesTheBestOfThemUnderFlush) {
  PlanOptions options;
  options.weights = plan::WeightPolicy::Flush;
  options.micro_batches = 16;
  const cluster::Cluster cluster = flat_cluster(4, 1'000'000'000'000, 1000);
  const plan::Plan chosen = *make_plan(eight_layers(), cluster, options).plan;
  EXPECT_EQ(chosen.weights, plan::WeightPolicy::Flush);
  for (const plan::Strategy strategy : synchronous_pipelines()) {
    const auto other = planned(eight_layers(), cluster, to_string(strategy), options).plan;
    ASSERT_TRUE(other.has_value()) << strategy;
    EXPECT_GE(chosen.prediction.throughput_samples_per_s,
              0.995 * other->prediction.throughput_samples_per_s)
        << strategy;
  }
}

TEST(SynchronousPipelines, KeepTheMemoryLimitByRecomputingOrSayNo) {
  // Activations of 5000 bytes a layer, inputs of 5.
  const profile::Profile heavy = [] {
    profile::Profile profile = eight_layers();
    for (profile::LayerCost& cost : profile.costs) cost.stash_bytes = 5000;
    return profile;
  }();
  const cluster::Cluster cluster = flat_cluster(2, 1'000'000'000'000);
  for (const char* strategy : {"interleaved", "interleaved-zb", "zb-v", "dualpipe-v", "dualpipe",
                               "chimera", "zb-h1", "eager-1f1b"}) {
    const plan::Plan free = *planned(heavy, cluster, strategy).plan;
    int64_t used = 0;
    for (const plan::Stage& stage : free.stages) used = std::max(used, stage.memory_bytes);
    PlanOptions options;
    options.memory_limit_bytes = used - 1;
    const plan::Plan tight = *planned(heavy, cluster, strategy, options).plan;
    for (const plan::Stage& stage : tight.stages) EXPECT_LT(stage.memory_bytes, used) << strategy;
    options.memory_limit_bytes = 100;
    const PlanResult none = planned(heavy, cluster, strategy, options);
    EXPECT_FALSE(none.plan.has_value()) << strategy;
    EXPECT_THAT(none.reason, HasSubstr("per worker")) << strategy;
  }
}

// With little memory an order from costs keeps less on even stages, or as much as each worker has
// the memory for on uneven ones; and what it may keep at most, it does.
TEST(SynchronousPipelines, OrdersFromCostsMakeTheMostOfEveryMemoryLimit) {
  const profile::Profile model = chain(std::vector<int64_t>(16, 1000), std::vector<int64_t>(16, 10),
                                       std::vector<int64_t>(16, 1000));
  const cluster::Cluster cluster = flat_cluster(4, 1'000'000'000'000, 200);
  double before = 0;
  for (int64_t limit = 8'000; limit <= 36'000; limit += 1'000) {
    PlanOptions options;
    options.straight = true;
    options.micro_batches = 16;
    options.recompute = Choice::Never;
    options.memory_limit_bytes = limit;
    const auto rate = [&](const char* strategy) {
      const auto plan = planned(model, cluster, strategy, options).plan;
      return plan ? plan->prediction.throughput_samples_per_s : 0;
    };
    const double from_costs = rate("zb-auto");
    for (const char* other : {"gpipe", "1f1b-flush", "eager-1f1b", "zb-h1", "zb-h2"})
      EXPECT_GE(from_costs, 0.999 * rate(other)) << other << " with " << limit << " bytes";
    EXPECT_GE(from_costs, 0.999 * before) << "slower with more memory: " << limit << " bytes";
    before = from_costs;
  }
  EXPECT_GT(before, 0);
}

// PENSTOCK_TRIALS=300 in the environment tries as many random chains instead.
int trials(int usual) {
  const char* asked = std::getenv("PENSTOCK_TRIALS");
  return asked == nullptr ? usual : std::atoi(asked);
}

struct RandomChain {
  profile::Profile model;
  cluster::Cluster cluster;
  PlanOptions options;

  double samples_per_s(const std::string& strategy) const {
    const auto plan = planned(model, cluster, strategy, options).plan;
    return plan ? plan->prediction.throughput_samples_per_s : 0;
  }
};

RandomChain random_pipeline(Rng& rng, int chunks) {
  const int workers = 2 + static_cast<int>(rng.below(4));
  const size_t layers = static_cast<size_t>(chunks * workers) + rng.below(8);
  std::vector<int64_t> times;
  std::vector<int64_t> weights;
  std::vector<int64_t> outputs;
  for (size_t l = 0; l < layers; ++l) {
    times.push_back(between(rng, 500, 2'500));
    weights.push_back(between(rng, 1, 20));
    outputs.push_back(between(rng, 100, 2'100));
  }
  RandomChain made{chain(times, weights, outputs),
                   flat_cluster(workers, 1'000'000'000'000, between(rng, 0, 500)),
                   {}};
  made.options.straight = chunks == 1;
  made.options.micro_batches = workers * between(rng, 1, 4);
  made.options.recompute = Choice::Never;
  made.options.memory_limit_bytes = between(rng, 4'000, 34'000);
  return made;
}

// It is not slower than other kinds of its placement that fit into the memory.
void expect_fastest(const std::string& from_costs, const std::vector<std::string>& others,
                    int chunks, int count) {
  Rng rng(5);
  int compared = 0;
  for (int trial = 0; trial < count; ++trial) {
    const RandomChain random = random_pipeline(rng, chunks);
    const double rate_from_costs = random.samples_per_s(from_costs);
    for (const std::string& other : others) {
      const double of_other = random.samples_per_s(other);
      EXPECT_GE(rate_from_costs, 0.999 * of_other)
          << other << " with " << *random.options.memory_limit_bytes << " bytes, trial " << trial;
      compared += of_other > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(compared, count);
}

TEST(SynchronousPipelines, OrdersFromCostsSuitUnevenStagesWithLittleMemory) {
  expect_fastest("zb-auto", {"gpipe", "1f1b-flush", "eager-1f1b", "zb-h1", "zb-h2"}, 1, trials(12));
}

TEST(SynchronousPipelines, OrdersFromCostsSuitUnevenVsWithLittleMemory) {
  expect_fastest("zb-auto-v", {"zb-v", "v-half", "v-min", "dualpipe-v"}, 2, trials(6));
}

// What "auto" chooses is what the strategy's own name gives: both look at the same splits. Auto may
// choose dp with a longer step than its own.
TEST(Families, AStrategyByNameIsNoSlowerThanAutosChoiceOfIt) {
  Rng rng(11);
  int pipelines = 0;
  for (int trial = 0; trial < trials(55); ++trial) {
    std::vector<int64_t> times;
    std::vector<int64_t> weights;
    std::vector<int64_t> outputs;
    for (int l = 0; l < 8; ++l) {
      times.push_back(between(rng, 500, 2'500));
      weights.push_back(between(rng, 100, 10'000));
      outputs.push_back(between(rng, 100, 4'000));
    }
    RandomChain random{chain(times, weights, outputs),
                       flat_cluster(2 + static_cast<int>(rng.below(4)),
                                    between(rng, 500, 5'000) * 1'000'000, between(rng, 0, 500)),
                       {}};
    const plan::Plan chosen = *planned(random.model, random.cluster, "auto", random.options).plan;
    pipelines += chosen.stages.size() > 1 ? 1 : 0;
    if (chosen.strategy == plan::Strategy::DataParallel)
      random.options.micro_batches = chosen.micro_batches;
    EXPECT_GE(random.samples_per_s(std::string(to_string(chosen.strategy))),
              0.995 * chosen.prediction.throughput_samples_per_s)
        << to_string(chosen.strategy) << ", trial " << trial;
  }
  EXPECT_GT(pipelines, 10);
}

TEST(SynchronousPipelines, OrdersFromCostsAreNoSlowerWithMoreMemory) {
  Rng rng(7);
  int compared = 0;
  const int count = trials(6);
  for (int trial = 0; trial < count; ++trial) {
    RandomChain random = random_pipeline(rng, 1);
    double before = 0;
    for (int64_t limit = 4'000; limit < 34'000; limit += limit / 8) {
      random.options.memory_limit_bytes = limit;
      const double rate = random.samples_per_s("zb-auto");
      EXPECT_GE(rate, 0.999 * before) << limit << " bytes, trial " << trial;
      compared += before > 0 ? 1 : 0;
      before = std::max(before, rate);
    }
  }
  EXPECT_GT(compared, 5 * count);
}

TEST(SynchronousPipelines, SayWhatTheyNeed) {
  const profile::Profile layer = chain({1}, {1}, {1});
  for (const char* strategy : {"interleaved", "zb-v", "dualpipe-v", "dualpipe", "chimera"}) {
    EXPECT_FALSE(planned(layer, flat_cluster(2, 1), strategy).plan.has_value()) << strategy;
    EXPECT_THAT(planned(eight_layers(), flat_cluster(1, 1), strategy).reason, HasSubstr("it takes"))
        << strategy;
  }
  PlanOptions options;
  options.slack = 3;
  EXPECT_EQ(planned(eight_layers(), flat_cluster(4, 1'000'000'000'000), "eager-1f1b", options)
                .plan->slack,
            3);
  EXPECT_THROW(planned(eight_layers(), flat_cluster(4, 1), "zb-h1", options), ConfigError);
  options.slack = {};
  options.chunks = 3;
  EXPECT_THROW(planned(eight_layers(), flat_cluster(4, 1), "zb-v", options), ConfigError);
}

}  // namespace
}  // namespace penstock::planner
