#include "penstock/planner/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "penstock/planner/testing_graphs.h"
#include "penstock/util/error.h"

namespace penstock::planner {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing_graphs::chain;
using testing_graphs::flat_cluster;

// VGG-16 in small: computation first, weights last. Times in us so that rounding does not matter.
profile::Profile vgg_like() { return chain({400'000, 400'000, 30'000}, {1000, 1000, 1'000'000}, {10'000, 10'000, 100}); }

plan::Plan made(const profile::Profile& profile, const cluster::Cluster& cluster, const PlanOptions& options = {}) {
  PlanResult result = make_plan(profile, cluster, options);
  EXPECT_TRUE(result.plan.has_value()) << result.reason;
  plan::validate(*result.plan);
  EXPECT_NO_THROW(plan::stage_of_layer(*result.plan, profile.graph));
  return *result.plan;
}

PlanOptions strategy(const std::string& name) {
  PlanOptions options;
  options.strategy = name;
  return options;
}

std::string failure(const profile::Profile& profile, const cluster::Cluster& cluster, const PlanOptions& options = {}) {
  try {
    make_plan(profile, cluster, options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Planner, SplitsOffTheHeavyWeightsOnASlowNetwork) {
  const plan::Plan plan = made(vgg_like(), flat_cluster(4, 1'000'000'000));
  EXPECT_EQ(plan.config(), "3-1");
  EXPECT_EQ(plan.strategy, "1f1b");
  EXPECT_EQ(plan.weights, "stash");
  EXPECT_EQ(plan.stages[1].layers, std::vector<std::string>{"l2"});
  EXPECT_EQ(plan.micro_batches, 3);
  EXPECT_EQ(plan.depth, 2);
  EXPECT_EQ(plan.links, (std::vector<plan::Link>{{StageId{0}, StageId{1}, 10'000}}));
  EXPECT_EQ(plan.stages[0].forward_ns, 800'000);
  EXPECT_EQ(plan.stages[0].backward_ns, 1'600'000);
}

TEST(Planner, ChoosesDataParallelWhenItIsBestAndSaysSo) {
  const plan::Plan plan = made(vgg_like(), flat_cluster(4, 1'000'000'000'000));
  EXPECT_EQ(plan.strategy, "dp");
  EXPECT_EQ(plan.config(), "4");
  EXPECT_EQ(plan.weights, "flush");
  EXPECT_THAT(plan.notes, Contains(HasSubstr("% of its time is gradient synchronisation")));
}

TEST(Planner, ChoosesOneWorkerWhenMoreDoNotHelp) {
  const plan::Plan plan = made(chain({10, 10}, {1'000'000, 1'000'000}, {1'000'000, 1}), flat_cluster(8, 1'000'000));
  EXPECT_EQ(plan.strategy, "serial");
  EXPECT_EQ(plan.config(), "1");
  EXPECT_THAT(plan.notes, Contains(HasSubstr("1 of 8 workers")));
}

TEST(Planner, ListsTheBestOfEveryFamily) {
  const plan::Plan plan = made(vgg_like(), flat_cluster(4, 1'000'000'000));
  std::vector<std::string> names;
  for (const plan::Alternative& alternative : plan.alternatives) names.push_back(alternative.strategy + " " + alternative.config);
  EXPECT_EQ(names, (std::vector<std::string>{"serial 1", "dp 4", "mp 1-1-1", "gpipe 1-1-1", "1f1b 3-1", "1f1b-flush 3-1"}));
  EXPECT_THAT(plan.notes, Contains(HasSubstr("Data parallelism over 4 workers would take")));
  for (const plan::Alternative& alternative : plan.alternatives) EXPECT_GT(alternative.throughput_samples_per_s, 0);
}

TEST(Planner, ThroughputIsThatOfTheBottleneckUpToFillingAndDraining) {
  const plan::Plan plan = made(vgg_like(), flat_cluster(4, 1'000'000'000));
  const double steady = 1e9 / static_cast<double>(plan.bottleneck_ns);
  EXPECT_LE(plan.throughput_samples_per_s, steady * 1.0001);
  EXPECT_GT(plan.throughput_samples_per_s, steady * 0.95);
}

TEST(Planner, EveryStrategyByNameGivesItsOwnFamily) {
  for (const std::string name : {"serial", "dp", "mp", "gpipe", "1f1b", "1f1b-flush", "2bw"}) {
    const plan::Plan plan = made(vgg_like(), flat_cluster(3, 1'000'000'000), strategy(name));
    EXPECT_EQ(plan.strategy, name);
    const bool pipeline = name != "serial" && name != "dp";
    EXPECT_EQ(plan.stages.size() > 1, pipeline) << name;
  }
  EXPECT_THAT(failure(vgg_like(), flat_cluster(3, 1), strategy("magic")), HasSubstr("expected auto, serial"));
  EXPECT_THAT(failure(vgg_like(), flat_cluster(3, 1), strategy("forward-only")), HasSubstr("unknown strategy"));
}

TEST(Planner, FlushedPipelinesTakeFourMicroBatchesPerStage) {
  EXPECT_EQ(made(vgg_like(), flat_cluster(3, 1'000'000'000), strategy("gpipe")).micro_batches, 12);
  PlanOptions options = strategy("gpipe");
  options.micro_batches = 5;
  const plan::Plan plan = made(vgg_like(), flat_cluster(3, 1'000'000'000), options);
  EXPECT_EQ(plan.micro_batches, 5);
  EXPECT_EQ(plan.depth, 5);
}

TEST(Planner, WeightsChooseThePipelineThatCanKeepThem) {
  PlanOptions options;
  options.weights = "2bw";
  EXPECT_EQ(made(vgg_like(), flat_cluster(4, 1'000'000'000), options).strategy, "2bw");
  options.weights = "flush";
  EXPECT_EQ(made(vgg_like(), flat_cluster(4, 1'000'000'000), options).strategy, "1f1b-flush");
  options.weights = "vertical-sync";
  EXPECT_EQ(made(vgg_like(), flat_cluster(4, 1'000'000'000), options).weights, "vertical-sync");
  options.strategy = "gpipe";
  EXPECT_THAT(failure(vgg_like(), flat_cluster(4, 1'000'000'000), options), HasSubstr("gpipe cannot run with weights vertical-sync"));
}

TEST(Planner, StraightUsesOneWorkerPerStage) {
  PlanOptions options;
  options.straight = true;
  EXPECT_EQ(made(vgg_like(), flat_cluster(2, 1'000'000'000), options).config(), "1-1");
  EXPECT_EQ(made(vgg_like(), flat_cluster(8, 1'000'000'000), options).config(), "1-1-1");
  options.strategy = "dp";
  EXPECT_THAT(failure(vgg_like(), flat_cluster(2, 1), options), HasSubstr("single stage"));
}

TEST(Planner, SlowerDevicesScaleTimes) {
  cluster::Cluster cluster = flat_cluster(1, 1'000'000'000);
  cluster.device.speed = 0.5;
  EXPECT_EQ(made(vgg_like(), cluster).stages[0].forward_ns, 2 * 830'000);
}

TEST(Planner, MemoryOfAPlanIsTheDocumentedFormula) {
  const profile::Profile profile = chain({100, 100, 100}, {1000, 2000, 3000}, {10, 20, 30});
  const plan::Plan straight = made(profile, flat_cluster(3, 1'000'000'000'000, 0), [] {
    PlanOptions options = strategy("1f1b");
    options.straight = true;
    return options;
  }());
  // Versions and stashes: 3, 2, 1. One gradient and one momentum each.
  EXPECT_EQ(straight.stages[0].memory_bytes, (3 + 2) * 1000 + 3 * 10);
  EXPECT_EQ(straight.stages[1].memory_bytes, (2 + 2) * 2000 + 2 * 20);
  EXPECT_EQ(straight.stages[2].memory_bytes, (1 + 2) * 3000 + 1 * 30);
  const plan::Plan gpipe = made(profile, flat_cluster(3, 1'000'000'000'000), strategy("gpipe"));
  EXPECT_EQ(gpipe.stages[0].memory_bytes, 3 * 1000 + 12 * 10);
}

TEST(Planner, KeepsTheMemoryLimitOrNamesWhatBinds) {
  const profile::Profile profile = chain({100, 100, 100, 100}, {1000, 1000, 1000, 1000}, {500, 500, 500, 500});
  PlanOptions options;
  for (options.memory_limit_bytes = 1; options.memory_limit_bytes < 20'000; options.memory_limit_bytes += 450) {
    const PlanResult result = make_plan(profile, flat_cluster(3, 1'000'000'000), options);
    if (result.plan) {
      for (const plan::Stage& stage : result.plan->stages) EXPECT_LE(stage.memory_bytes, options.memory_limit_bytes);
      continue;
    }
    EXPECT_THAT(result.reason, HasSubstr("no 1f1b plan for 3 workers fits into"));
    EXPECT_THAT(result.reason, HasSubstr("the least that would do is"));
    EXPECT_THAT(result.reason, HasSubstr("layer 'l"));
  }
}

TEST(Planner, TheLeastMemoryItNamesReallyDoes) {
  const profile::Profile profile = chain({100, 100, 100, 100}, {1000, 1000, 1000, 1000}, {500, 500, 500, 500});
  PlanOptions options;
  options.memory_limit_bytes = 1000;
  const PlanResult result = make_plan(profile, flat_cluster(3, 1'000'000'000), options);
  ASSERT_FALSE(result.plan.has_value());
  const size_t at = result.reason.find('(') + 1;
  options.memory_limit_bytes = std::stoll(result.reason.substr(at));
  EXPECT_TRUE(make_plan(profile, flat_cluster(3, 1'000'000'000), options).plan.has_value()) << result.reason;
}

// The search's bound on memory is never below what the finished schedule really holds, so a partition it accepts is never rejected later.
TEST(Planner, NoPartitionIsFoundAndThenTurnsOutTooLarge) {
  int fitting = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    Rng rng(seed);
    const profile::Profile profile = testing_graphs::random_profile(rng, 6, 0.2);
    const std::string names[] = {"auto", "1f1b", "1f1b-flush", "2bw", "gpipe", "mp"};
    PlanOptions options = strategy(names[seed % 6]);
    options.memory_limit_bytes = testing_graphs::between(rng, 200, 900);
    if (rng.below(3) == 0 && options.strategy != "2bw") options.micro_batches = testing_graphs::between(rng, 1, 10);
    const PlanResult result = make_plan(profile, flat_cluster(static_cast<int>(1 + rng.below(5)), 1'000'000'000, 2), options);
    fitting += result.plan ? 1 : 0;
    if (result.plan) continue;
    EXPECT_THAT(result.reason, HasSubstr("the least that would do is")) << "seed " << seed;
  }
  EXPECT_GT(fitting, 30);
  EXPECT_LT(fitting, 140);
}

TEST(Planner, DeviceMemoryIsALimitToo) {
  cluster::Cluster cluster = flat_cluster(2, 1'000'000'000);
  cluster.device.memory_bytes = 10;
  EXPECT_FALSE(make_plan(vgg_like(), cluster, {}).plan.has_value());
}

TEST(Planner, AlternativesThatDoNotFitAreNoted) {
  const profile::Profile profile = chain({100, 100}, {10'000, 10'000}, {10, 10});
  PlanOptions options;
  options.memory_limit_bytes = 45'000;
  const plan::Plan plan = made(profile, flat_cluster(2, 1'000'000'000), options);
  EXPECT_EQ(plan.config(), "1-1");
  EXPECT_THAT(plan.notes, Contains(HasSubstr("Left out: no dp plan")));
}

TEST(Planner, AValueReadTwiceTravelsToBothReaders) {
  profile::Profile profile;
  profile.graph = graph::ModelGraph::build(1,
                                           {{"a", "k", {graph::ValueRef::model_input(0)}, 1},
                                            {"b", "k", {{LayerId{0}, 0}}, 1},
                                            {"c", "k", {{LayerId{1}, 0}, {LayerId{0}, 0}}, 1}},
                                           {{LayerId{2}, 0}});
  profile.costs.assign(3, {.forward_ns = 1000, .backward_ns = 1000, .output_bytes = {8}});
  const plan::Plan plan = price_plan(profile, flat_cluster(3, 1'000'000'000), {{"a"}, {"b"}, {"c"}}, {1, 1, 1}, {});
  EXPECT_EQ(plan.links, (std::vector<plan::Link>{{StageId{0}, StageId{1}, 8}, {StageId{0}, StageId{2}, 8}, {StageId{1}, StageId{2}, 8}}));
}

TEST(Planner, PricedByHandItEqualsItsOwnPlan) {
  for (const std::string name : {"auto", "1f1b", "gpipe", "mp"}) {
    plan::Plan plan = made(vgg_like(), flat_cluster(3, 1'000'000'000), strategy(name));
    std::vector<std::vector<std::string>> stages;
    for (const plan::Stage& stage : plan.stages) stages.push_back(stage.layers);
    plan::Plan priced = price_plan(vgg_like(), flat_cluster(3, 1'000'000'000), stages, plan.replicas(), strategy(name));
    plan.alternatives.clear();
    plan.notes.clear();
    priced.notes.clear();
    EXPECT_EQ(priced, plan) << name;
  }
}

TEST(Planner, PriceRefusesSplitsThatDoNotCoverTheModel) {
  const cluster::Cluster cluster = flat_cluster(3, 1'000'000'000);
  EXPECT_THROW(price_plan(vgg_like(), cluster, {{"l0"}, {"l2"}}, {1, 1}, {}), ConfigError);
  EXPECT_THROW(price_plan(vgg_like(), cluster, {{"l1"}, {"l0", "l2"}}, {1, 1}, {}), ConfigError);
  EXPECT_THROW(price_plan(vgg_like(), cluster, {{"l0", "l1", "l2"}}, {1, 1}, {}), ConfigError);
  EXPECT_THROW(price_plan(vgg_like(), cluster, {{"l0", "l1", "l2"}}, {4}, {}), ConfigError);
  EXPECT_THROW(price_plan(vgg_like(), cluster, {{"l0", "l1", "l2"}, {}}, {1, 1}, {}), ConfigError);
  EXPECT_THROW(price_plan(vgg_like(), cluster, {}, {}, {}), ConfigError);
}

TEST(Planner, AutoIsNeverClearlySlowerThanItsSimpleAlternatives) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Rng rng(seed);
    profile::Profile profile = testing_graphs::random_profile(rng, 8, 0.1);
    const plan::Plan plan =
        made(profile, flat_cluster(static_cast<int>(2 + rng.below(5)), 2'000'000'000, testing_graphs::between(rng, 0, 20)));
    for (const plan::Alternative& alternative : plan.alternatives) {
      if (alternative.strategy != "dp" && alternative.strategy != "serial") continue;
      EXPECT_LE(alternative.throughput_samples_per_s, 1.021 * plan.throughput_samples_per_s)
          << "seed " << seed << ' ' << alternative.strategy;
    }
  }
}

TEST(Planner, PlansTooLargeToSimulateAreEstimatedAndSaidSo) {
  const std::vector<int64_t> ones(600, 1'000);
  const plan::Plan plan =
      made(chain(ones, std::vector<int64_t>(600, 1), std::vector<int64_t>(600, 0)), flat_cluster(600, 1'000'000'000), strategy("gpipe"));
  EXPECT_THAT(plan.notes, Contains(HasSubstr("too large to be simulated")));
  EXPECT_NEAR(plan.throughput_samples_per_s, 1e9 / (3'000 * (1 + 599.0 / 2400)), 1);
  EXPECT_EQ(plan.stages[0].memory_bytes, 3 + 0);
}

TEST(Planner, ExtremeInputGivesAPlanOrAConfigError) {
  made(chain({0, 0, 0}, {0, 0, 0}, {0, 0, 0}), flat_cluster(4, 1'000'000'000));
  const int64_t huge = 1'000'000'000'000'000'000;
  made(chain({1, 1, 1}, {huge, 1, huge}, {huge, 1, 1}), flat_cluster(4, 1));
  made(chain({huge / 2, 1, huge / 2}, {1, 1, 1}, {1, 1, 1}), flat_cluster(4, 1));
  made(chain({1, 1, 1}, {1, 1, 1}, {1, 1, 1}), flat_cluster(kMaxPlannedWorkers, 1'000'000'000));
  EXPECT_THAT(failure(chain({1, 1, 1}, {1, 1, 1}, {1, 1, 1}), flat_cluster(1'000'000, 1)), HasSubstr("at most 4096"));
  EXPECT_THAT(failure(chain({huge * 4, huge * 4}, {1, 1}, {1, 1}), flat_cluster(1, 1)), HasSubstr("2^62"));
  PlanOptions options;
  options.micro_batches = kMaxMicroBatchesPerStep;
  made(vgg_like(), flat_cluster(3, 1'000'000'000), options);
  options.micro_batches = -1;
  EXPECT_THAT(failure(vgg_like(), flat_cluster(3, 1), options), HasSubstr("found -1"));
}

TEST(Planner, SeveralLevelsAreTreatedAsOneAndSaidSo) {
  cluster::Cluster cluster = flat_cluster(2, 10'000'000'000);
  cluster.levels.push_back({.name = "rack", .count = 2, .bandwidth_bytes_per_s = 1'000'000'000, .latency_ns = 10});
  EXPECT_THAT(made(vgg_like(), cluster).notes, Contains(HasSubstr("2 network levels")));
}

TEST(Planner, IsDeterministic) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Rng rng(seed);
    const profile::Profile profile = testing_graphs::random_profile(rng, 8, 0.2);
    const auto cluster = flat_cluster(static_cast<int>(1 + rng.below(5)), 1'000'000'000, 1);
    EXPECT_EQ(made(profile, cluster), made(profile, cluster)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace penstock::planner
