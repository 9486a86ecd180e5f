#include "penstock/planner/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "penstock/planner/cost/named_models.h"
#include "penstock/planner/testing/testing_graphs.h"
#include "penstock/util/error.h"

namespace penstock::planner {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing_graphs::chain;
using testing_graphs::flat_cluster;
using testing_graphs::two_servers;
using testing_graphs::vgg_like;

plan::Plan made(const profile::Profile& profile, const cluster::Cluster& cluster,
                const PlanOptions& options = {}) {
  PlanResult result = make_plan(profile, cluster, options);
  EXPECT_TRUE(result.plan.has_value()) << result.reason;
  plan::validate(*result.plan);
  EXPECT_NO_THROW(plan::stage_of_layer(*result.plan, profile.graph));
  return *result.plan;
}

PlanOptions strategy(const std::string& name) {
  PlanOptions options;
  options.strategy = plan::parse_strategy_choice(name);
  return options;
}

std::string failure(const profile::Profile& profile, const cluster::Cluster& cluster,
                    const PlanOptions& options = {}) {
  try {
    make_plan(profile, cluster, options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

// Each of the plans on the way is faster than all before, and the last one is the answer or, where
// that is no pipeline, within what may be taken for as fast.
TEST(Planner, SaysWhenItFoundThePlan) {
  const cluster::Cluster cluster = two_servers();
  for (const std::string name : {"auto", "dp", "hybrid", "1f1b", "zb-h2", "gpipe"}) {
    for (const bool any_sync : {false, true}) {
      PlanOptions options = strategy(name);
      if (any_sync) options.sync.reset();
      const PlanResult result = make_plan(vgg_like(), cluster, options);
      ASSERT_TRUE(result.plan) << name << ": " << result.reason;
      EXPECT_GT(result.found_after.count(), 0) << name;
      EXPECT_LT(result.found_after, result.searched) << name;
      ASSERT_FALSE(result.improvements.empty()) << name;
      for (size_t k = 1; k < result.improvements.size(); ++k) {
        EXPECT_GT(result.improvements[k].samples_per_s, result.improvements[k - 1].samples_per_s);
        EXPECT_GE(result.improvements[k].after, result.improvements[k - 1].after);
      }
      EXPECT_LE(result.improvements.back().after, result.searched) << name;
      EXPECT_NEAR(result.improvements.back().samples_per_s,
                  result.plan->prediction.throughput_samples_per_s,
                  0.005 * result.improvements.back().samples_per_s)
          << name;
    }
  }
}

TEST(Planner, SaysWhichNumbersTheChosenStrategyHasNoUseFor) {
  const cluster::Cluster cluster = flat_cluster(4, 1'000'000'000);
  const std::vector<std::string> notes = made(vgg_like(), cluster).explanation.notes;
  PlanOptions options;
  options.synchronous_pipelines = false;
  options.slack = 3;
  options.keep = 2;
  const plan::Plan plan = made(vgg_like(), cluster, options);
  EXPECT_EQ(plan.strategy, plan::Strategy::OneFOneB);
  EXPECT_EQ(plan.slack, 0);
  EXPECT_THAT(plan.explanation.notes, testing::Contains(HasSubstr("slack has no effect on 1f1b")));
  EXPECT_THAT(plan.explanation.notes, testing::Contains(HasSubstr("keep has no effect on 1f1b")));
  EXPECT_THAT(notes, testing::Not(testing::Contains(HasSubstr("no effect"))));
}

TEST(Planner, SplitsOffTheHeavyWeightsOnASlowNetwork) {
  PlanOptions options;
  options.synchronous_pipelines = false;
  const plan::Plan plan = made(vgg_like(), flat_cluster(4, 1'000'000'000), options);
  EXPECT_EQ(plan.config(), "3-1");
  EXPECT_EQ(plan.strategy, plan::Strategy::OneFOneB);
  EXPECT_EQ(plan.weights, plan::WeightPolicy::Stash);
  EXPECT_EQ(plan.stages[1].layers, std::vector<std::string>{"l2"});
  EXPECT_EQ(plan.micro_batches, 3);
  EXPECT_EQ(plan.depth, 2);
  EXPECT_EQ(plan.links, (std::vector<plan::Link>{{StageId{0}, StageId{1}, 10'000}}));
  EXPECT_EQ(plan.stages[0].forward_ns, 800'000);
  EXPECT_EQ(plan.stages[0].backward_ns, 1'600'000);
}

TEST(Planner, KeepsToTheFlushWhereLayersShareWeights) {
  profile::Profile profile = vgg_like();
  PlanOptions options;
  options.synchronous_pipelines = false;
  const plan::Plan free = made(profile, flat_cluster(4, 1'000'000'000), options);
  std::vector<graph::LayerNode> layers = profile.graph.layers();
  layers[2].ties = {{0, {LayerId{0}, 0}}};
  profile.graph =
      graph::ModelGraph::build(profile.graph.num_inputs(), layers, profile.graph.outputs());
  profile.costs[2].tied_bytes = {1000};
  ASSERT_EQ(free.weights, plan::WeightPolicy::Stash);
  const plan::Plan tied = made(profile, flat_cluster(4, 1'000'000'000));
  EXPECT_EQ(tied.weights, plan::WeightPolicy::Flush);
  EXPECT_THAT(tied.explanation.notes, Contains(HasSubstr("Layers share weights")));

  const plan::Plan asked = made(profile, flat_cluster(4, 1'000'000'000), strategy("1f1b"));
  EXPECT_EQ(asked.weights, plan::WeightPolicy::Stash);
  EXPECT_THAT(asked.explanation.notes, Contains(HasSubstr("cannot be trained with weights stash")));
}

TEST(Planner, ChoosesDataParallelWhenItIsBestAndSaysSo) {
  const plan::Plan plan = made(vgg_like(), flat_cluster(4, 1'000'000'000'000));
  EXPECT_EQ(plan.strategy, plan::Strategy::DataParallel);
  EXPECT_EQ(plan.config(), "4");
  EXPECT_EQ(plan.weights, plan::WeightPolicy::Flush);
  EXPECT_THAT(plan.explanation.notes,
              Contains(HasSubstr(" % of its time is gradient synchronisation")));
}

TEST(Planner, ChoosesOneWorkerWhenMoreDoNotHelp) {
  const plan::Plan plan =
      made(chain({10, 10}, {1'000'000, 1'000'000}, {1'000'000, 1}), flat_cluster(8, 1'000'000));
  EXPECT_EQ(plan.strategy, plan::Strategy::Serial);
  EXPECT_EQ(plan.config(), "1");
  EXPECT_THAT(plan.explanation.notes, Contains(HasSubstr("1 of 8 workers")));
}

TEST(Planner, ListsTheBestOfEveryFamily) {
  const plan::Plan plan = made(vgg_like(), flat_cluster(4, 1'000'000'000));
  std::vector<std::string> names;
  for (const plan::Alternative& alternative : plan.explanation.alternatives)
    names.push_back(std::string(to_string(alternative.strategy)) + " " + alternative.config);
  EXPECT_EQ(names, (std::vector<std::string>{"serial 1", "dp 4", "mp 1-1-1", "gpipe 1-1-1",
                                             "1f1b 3-1", "1f1b-flush 2-2"}));
  EXPECT_THAT(plan.explanation.notes, Contains(HasSubstr("Data parallelism over 4 workers is 0.")));
  for (const plan::Alternative& alternative : plan.explanation.alternatives)
    EXPECT_GT(alternative.throughput_samples_per_s, 0);
}

std::string note_of(const plan::Plan& plan, plan::Strategy strategy) {
  for (const plan::Alternative& row : plan.explanation.alternatives) {
    if (row.strategy == strategy) return row.note;
  }
  return "no such row";
}

TEST(Planner, GivesNoReasonToFamiliesThatAreAsFast) {
  PlanOptions options = strategy("1f1b-flush");
  options.compare = true;
  const plan::Plan plan = made(vgg_like(), flat_cluster(4, 1'000'000'000), options);
  for (const plan::Alternative& row : plan.explanation.alternatives) {
    const double speed = row.throughput_samples_per_s / plan.prediction.throughput_samples_per_s;
    if (row.strategy == plan.strategy || speed <= 0.995 || speed >= 1.005) continue;
    EXPECT_EQ(row.note, "is as fast.") << row.strategy;
  }
}

TEST(Planner, NamesNoWeaknessThatTheChosenPlanShares) {
  PlanOptions options = strategy("1f1b-flush");
  options.compare = true;
  const plan::Plan plan =
      made(chain(std::vector<int64_t>(8, 1'000'000), std::vector<int64_t>(8, 1'000'000),
                 std::vector<int64_t>(8, 1'000)),
           flat_cluster(4, 1'000'000'000), options);
  for (const plan::Alternative& row : plan.explanation.alternatives) {
    if (row.strategy == plan.strategy) continue;
    EXPECT_THAT(row.note, Not(HasSubstr("drains before every step"))) << row.strategy;
  }
  EXPECT_THAT(note_of(plan, plan::Strategy::ModelParallel),
              HasSubstr("only one micro-batch is under way at a time"));
}

TEST(Planner, SaysWhatAutoPrefersOnlyWhereItChose) {
  PlanOptions options = strategy("mp");
  options.compare = true;
  const plan::Plan plan = made(vgg_like(), flat_cluster(4, 1'000'000'000), options);
  for (const plan::Alternative& row : plan.explanation.alternatives)
    EXPECT_THAT(row.note, Not(HasSubstr("auto"))) << row.strategy;
  EXPECT_THAT(note_of(plan, plan::Strategy::GPipe), HasSubstr("x as fast."));
}

TEST(Planner, ThroughputIsThatOfTheBottleneckUpToFillingAndDraining) {
  const plan::Plan plan = made(vgg_like(), flat_cluster(4, 1'000'000'000));
  const double steady = 1e9 / static_cast<double>(plan.prediction.bottleneck_ns);
  EXPECT_LE(plan.prediction.throughput_samples_per_s, steady * 1.0001);
  EXPECT_GT(plan.prediction.throughput_samples_per_s, steady * 0.95);
}

TEST(Planner, EveryStrategyByNameGivesItsOwnFamily) {
  for (const std::string name : {"serial", "dp", "mp", "gpipe", "1f1b", "1f1b-flush", "2bw"}) {
    const plan::Plan plan = made(vgg_like(), flat_cluster(3, 1'000'000'000), strategy(name));
    EXPECT_EQ(to_string(plan.strategy), name);
    const bool pipeline = name != "serial" && name != "dp";
    EXPECT_EQ(plan.stages.size() > 1, pipeline) << name;
  }
}

TEST(Planner, RefusesWhatDoesNotTrain) {
  PlanOptions options;
  options.strategy = plan::Strategy::ForwardOnly;
  EXPECT_THAT(failure(vgg_like(), flat_cluster(3, 1), options), HasSubstr("does not train"));
}

TEST(Planner, HybridRunsAsAFlushedPipelineAndInterleavedNotAtAll) {
  const plan::Plan plan = made(vgg_like(), flat_cluster(8, 1'000'000'000), strategy("hybrid"));
  EXPECT_EQ(plan.strategy, plan::Strategy::OneFOneBFlush);
  EXPECT_EQ(plan.config(), "7-1");
  EXPECT_EQ(plan.micro_batches, 7);
  EXPECT_THAT(plan.explanation.notes, Contains(HasSubstr("Hybrid parallelism")));
  EXPECT_FALSE(make_plan(vgg_like(), flat_cluster(1, 1), strategy("hybrid")).plan.has_value());
  PlanOptions options = strategy("hybrid");
  options.weights = plan::WeightPolicy::Stash;
  EXPECT_THAT(failure(vgg_like(), flat_cluster(8, 1), options), HasSubstr("its default is flush"));
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
  options.weights = plan::WeightPolicy::TwoBuffered;
  EXPECT_EQ(made(vgg_like(), flat_cluster(4, 1'000'000'000), options).strategy,
            plan::Strategy::TwoBuffered);
  options.weights = plan::WeightPolicy::Flush;
  EXPECT_EQ(made(vgg_like(), flat_cluster(4, 1'000'000'000), options).weights,
            plan::WeightPolicy::Flush);
  options.weights = plan::WeightPolicy::VerticalSync;
  EXPECT_EQ(made(vgg_like(), flat_cluster(4, 1'000'000'000), options).weights,
            plan::WeightPolicy::VerticalSync);
  options.strategy = plan::Strategy::GPipe;
  EXPECT_THAT(failure(vgg_like(), flat_cluster(4, 1'000'000'000), options),
              HasSubstr("gpipe cannot run with weights vertical-sync"));
}

TEST(Planner, StraightUsesOneWorkerPerStage) {
  PlanOptions options;
  options.straight = true;
  options.synchronous_pipelines = false;  // chimera is straight, and has replicas
  EXPECT_EQ(made(vgg_like(), flat_cluster(2, 1'000'000'000), options).config(), "1-1");
  EXPECT_EQ(made(vgg_like(), flat_cluster(8, 1'000'000'000), options).config(), "1-1-1");
  options.strategy = plan::Strategy::DataParallel;
  EXPECT_THAT(failure(vgg_like(), flat_cluster(2, 1), options), HasSubstr("single stage"));
}

TEST(Planner, SlowerDevicesScaleTimes) {
  cluster::Cluster cluster = flat_cluster(1, 1'000'000'000);
  cluster.device.speed = 0.5;
  EXPECT_EQ(made(vgg_like(), cluster).stages[0].forward_ns, 2 * 830'000);
}

TEST(Planner, DelaysAreNotedAndCompensatedWhereThatIsAsked) {
  const profile::Profile profile = chain({100, 100, 100}, {1000, 2000, 3000}, {10, 20, 30});
  const cluster::Cluster cluster = flat_cluster(3, 1'000'000'000'000, 0);
  PlanOptions options = strategy("1f1b");
  options.straight = true;
  const plan::Plan plain = made(profile, cluster, options);
  EXPECT_EQ(plain.compensation, plan::Compensation::None);
  EXPECT_THAT(
      plain.explanation.notes,
      Contains("Weights stash: gradients are computed on weights of 2, 1, 0 steps ago, stage "
               "by stage. Compensations that work with them: predict, rate, nesterov "
               "(docs/weights.md)."));
  options.compensation = plan::Compensation::Predict;
  const plan::Plan predicted = made(profile, cluster, options);
  EXPECT_EQ(predicted.compensation, plan::Compensation::Predict);
  EXPECT_THAT(predicted.explanation.notes, Contains(HasSubstr("compensated by predict: weights")));
  // A copy for each of 3, 2 and no versions.
  for (size_t s = 0; s < 3; ++s) {
    const int64_t copies = std::vector<int64_t>{3 * 1000, 2 * 2000, 0}[s];
    EXPECT_EQ(predicted.stages[s].memory_bytes, plain.stages[s].memory_bytes + copies) << s;
  }
  options.weights = plan::WeightPolicy::Latest;
  options.compensation = plan::Compensation::Correct;
  EXPECT_EQ(made(profile, cluster, options).stages[0].memory_bytes,
            (2 + 2) * 1000 + 3 * 10 + 2 * 10);
}

TEST(Planner, ACompensationChoosesWeightsWithDelaysOrIsRefused) {
  const cluster::Cluster cluster = flat_cluster(4, 1'000'000'000);
  PlanOptions options;
  options.compensation = plan::Compensation::Predict;
  const plan::Plan plan = made(vgg_like(), cluster, options);
  EXPECT_EQ(plan.weights, plan::WeightPolicy::Stash);
  EXPECT_EQ(plan.compensation, plan::Compensation::Predict);
  options.strategy = plan::Strategy::GPipe;
  EXPECT_THAT(failure(vgg_like(), cluster, options), HasSubstr("does not work with weights flush"));
  options.strategy = plan::Strategy::Hybrid;
  EXPECT_THAT(failure(vgg_like(), cluster, options), HasSubstr("does not work with weights flush"));
  options.strategy = plan::Strategy::OneFOneB;
  options.shard_optimizer = Choice::Always;
  EXPECT_THAT(failure(vgg_like(), cluster, options), HasSubstr("shares out the optimiser's state"));
}

TEST(Planner, MemoryOfAPlanIsTheDocumentedFormula) {
  const profile::Profile profile = chain({100, 100, 100}, {1000, 2000, 3000}, {10, 20, 30});
  const plan::Plan straight = made(profile, flat_cluster(3, 1'000'000'000'000, 0), [] {
    PlanOptions options = strategy("1f1b");
    options.straight = true;
    return options;
  }());
  // Versions and stashes: 3, 2, 1. One gradient and one momentum each. A message each way with
  // every neighbour.
  EXPECT_EQ(straight.stages[0].memory_bytes, (3 + 2) * 1000 + 3 * 10 + 2 * 10);
  EXPECT_EQ(straight.stages[1].memory_bytes, (2 + 2) * 2000 + 2 * 20 + 2 * (10 + 20));
  EXPECT_EQ(straight.stages[2].memory_bytes, (1 + 2) * 3000 + 1 * 30 + 2 * 20);
  const plan::Plan gpipe = made(profile, flat_cluster(3, 1'000'000'000'000), strategy("gpipe"));
  EXPECT_EQ(gpipe.stages[0].memory_bytes, 3 * 1000 + 12 * 10 + 2 * 10);
  PlanOptions adam = strategy("gpipe");
  adam.optimizer_state_per_weight = 2;
  EXPECT_EQ(made(profile, flat_cluster(3, 1'000'000'000'000), adam).stages[0].memory_bytes,
            4 * 1000 + 12 * 10 + 2 * 10);
}

TEST(Planner, KeepsTheMemoryLimitOrNamesWhatBinds) {
  const profile::Profile profile =
      chain({100, 100, 100, 100}, {1000, 1000, 1000, 1000}, {500, 500, 500, 500});
  PlanOptions options;
  for (int64_t limit = 1; limit < 20'000; limit += 450) {
    options.memory_limit_bytes = limit;
    const PlanResult result = make_plan(profile, flat_cluster(3, 1'000'000'000), options);
    if (result.plan) {
      for (const plan::Stage& stage : result.plan->stages)
        EXPECT_LE(stage.memory_bytes, options.memory_limit_bytes);
      continue;
    }
    EXPECT_THAT(result.reason, HasSubstr("no 1f1b plan for 3 workers fits into"));
    EXPECT_THAT(result.reason, HasSubstr("the minimum required is"));
    EXPECT_THAT(result.reason, HasSubstr("layer 'l"));
  }
}

TEST(Planner, GuessedActivationsAreNotRefusedWhereTheyMayFit) {
  profile::Profile profile = vgg_like();
  profile.costs[0].stash_bytes = 800'000;
  PlanOptions options = strategy("dp");
  const cluster::Cluster cluster = flat_cluster(4, 1'000'000'000);
  const int64_t needed = made(profile, cluster, options).stages[0].memory_bytes;
  options.memory_limit_bytes = needed - 100'000;
  EXPECT_FALSE(make_plan(profile, cluster, options).plan.has_value());

  profile.source = profile::kGraphFile;
  const plan::Plan guessed = made(profile, cluster, options);
  EXPECT_EQ(guessed.stages[0].memory_bytes, needed) << "what is predicted is the guess";
  EXPECT_THAT(guessed.explanation.notes, Contains(HasSubstr("Stage 0 may not fit")));
  options.memory_limit_bytes = needed + 1;
  EXPECT_THAT(made(profile, cluster, options).explanation.notes,
              testing::Not(Contains(HasSubstr("may not fit"))));
  options.memory_limit_bytes = needed - 300'000;
  EXPECT_FALSE(make_plan(profile, cluster, options).plan.has_value()) << "not even then";
}

TEST(Planner, TheMinimumMemoryItNamesIsEnough) {
  const profile::Profile profile =
      chain({100, 100, 100, 100}, {1000, 1000, 1000, 1000}, {500, 500, 500, 500});
  PlanOptions options;
  options.memory_limit_bytes = 1000;
  const PlanResult result = make_plan(profile, flat_cluster(3, 1'000'000'000), options);
  ASSERT_FALSE(result.plan.has_value());
  const size_t at = result.reason.find('(') + 1;
  options.memory_limit_bytes = std::stoll(result.reason.substr(at));
  EXPECT_TRUE(make_plan(profile, flat_cluster(3, 1'000'000'000), options).plan.has_value())
      << result.reason;
}

// The search's bound on memory is never below what the finished schedule really holds, so a
// partition it accepts is never rejected later.
TEST(Planner, NoPartitionIsFoundAndThenTurnsOutTooLarge) {
  int fitting = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    Rng rng(seed);
    const profile::Profile profile = testing_graphs::random_profile(rng, 6, 0.2);
    const std::string names[] = {"auto", "1f1b", "1f1b-flush", "2bw", "gpipe", "mp"};
    PlanOptions options = strategy(names[seed % 6]);
    options.memory_limit_bytes = testing_graphs::between(rng, 200, 900);
    if (rng.below(3) == 0 && options.strategy != plan::Strategy::TwoBuffered)
      options.micro_batches = testing_graphs::between(rng, 1, 10);
    const PlanResult result = make_plan(
        profile, flat_cluster(static_cast<int>(1 + rng.below(5)), 1'000'000'000, 2), options);
    fitting += result.plan ? 1 : 0;
    if (result.plan) continue;
    EXPECT_THAT(result.reason, HasSubstr("the minimum required is")) << "seed " << seed;
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
  EXPECT_THAT(plan.explanation.notes, Contains(HasSubstr("Left out: dp: no dp plan")));
}

TEST(Planner, AValueReadTwiceTravelsToBothReaders) {
  profile::Profile profile;
  profile.graph = graph::ModelGraph::build(1,
                                           {{"a", "k", {graph::ValueRef::model_input(0)}, 1},
                                            {"b", "k", {{LayerId{0}, 0}}, 1},
                                            {"c", "k", {{LayerId{1}, 0}, {LayerId{0}, 0}}, 1}},
                                           {{LayerId{2}, 0}});
  profile.costs.assign(
      3, {.forward_ns = 1000, .backward_ns = 1000, .output_bytes = {8}, .weight_bytes = 4});
  const plan::Plan plan =
      price_plan(profile, flat_cluster(3, 1'000'000'000), {{"a"}, {"b"}, {"c"}}, {1, 1, 1}, {});
  EXPECT_EQ(plan.links, (std::vector<plan::Link>{{StageId{0}, StageId{1}, 8},
                                                 {StageId{0}, StageId{2}, 8},
                                                 {StageId{1}, StageId{2}, 8}}));
}

TEST(Planner, PricedByHandItEqualsItsOwnPlan) {
  for (const std::string name : {"auto", "1f1b", "gpipe", "mp"}) {
    plan::Plan plan = made(vgg_like(), flat_cluster(3, 1'000'000'000), strategy(name));
    plan::Plan priced =
        price_plan(vgg_like(), flat_cluster(3, 1'000'000'000), plan.stages, strategy(name));
    plan.explanation.alternatives.clear();
    plan.explanation.notes.clear();
    priced.explanation.notes.clear();
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

TEST(Planner, AutoIsNeverSlowerThanWhatItMayPick) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Rng rng(seed);
    profile::Profile profile = testing_graphs::random_profile(rng, 8, 0.1);
    const plan::Plan plan =
        made(profile, flat_cluster(static_cast<int>(2 + rng.below(5)), 2'000'000'000,
                                   testing_graphs::between(rng, 0, 20)));
    for (const plan::Alternative& alternative : plan.explanation.alternatives) {
      if (alternative.strategy != plan::Strategy::DataParallel &&
          alternative.strategy != plan::Strategy::Serial &&
          alternative.strategy != plan::Strategy::OneFOneB)
        continue;
      EXPECT_LE(alternative.throughput_samples_per_s, plan.prediction.throughput_samples_per_s)
          << "seed " << seed << ' ' << alternative.strategy;
    }
  }
}

TEST(Planner, PlansTooLargeToSimulateAreEstimatedAndSaidSo) {
  const std::vector<int64_t> ones(600, 1'000);
  const plan::Plan plan =
      made(chain(ones, std::vector<int64_t>(600, 1), std::vector<int64_t>(600, 0)),
           flat_cluster(600, 1'000'000'000), strategy("gpipe"));
  EXPECT_THAT(plan.explanation.notes, Contains(HasSubstr("too large to be simulated")));
  EXPECT_NEAR(plan.prediction.throughput_samples_per_s, 1e9 / (3'000 * (1 + 599.0 / 2400)), 1);
  EXPECT_EQ(plan.stages[0].memory_bytes, 3 + 0);
}

TEST(Planner, ExtremeInputGivesAPlanOrAConfigError) {
  made(chain({0, 0, 0}, {0, 0, 0}, {0, 0, 0}), flat_cluster(4, 1'000'000'000));
  const int64_t huge = 1'000'000'000'000'000'000;
  made(chain({1, 1, 1}, {huge, 1, huge}, {huge, 1, 1}), flat_cluster(4, 1));
  made(chain({huge / 2, 1, huge / 2}, {1, 1, 1}, {1, 1, 1}), flat_cluster(4, 1));
  made(chain({1, 1, 1}, {1, 1, 1}, {1, 1, 1}), flat_cluster(kMaxPlannedWorkers, 1'000'000'000));
  EXPECT_THAT(failure(chain({1, 1, 1}, {1, 1, 1}, {1, 1, 1}), flat_cluster(2'000'000, 1)),
              HasSubstr("at most 1000000"));
  EXPECT_THAT(failure(chain({huge * 4, huge * 4}, {1, 1}, {1, 1}), flat_cluster(1, 1)),
              HasSubstr("2^62"));
  PlanOptions options;
  options.micro_batches = kMaxMicroBatchesPerStep;
  made(vgg_like(), flat_cluster(3, 1'000'000'000), options);
  options.micro_batches = {};
  options.optimizer_state_per_weight = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(failure(vgg_like(), flat_cluster(3, 1), options), HasSubstr("optimiser state"));
  options.optimizer_state_per_weight = 1e300;
  made(vgg_like(), flat_cluster(3, 1), options);
  EXPECT_THROW(make_plan(profile::Profile{}, flat_cluster(3, 1), {}), ConfigError);
  cluster::Cluster slow = flat_cluster(3, 1'000'000'000);
  slow.device.speed = 1e-300;
  EXPECT_THAT(failure(vgg_like(), slow), HasSubstr("2^62"));
  slow.device.speed = 1e300;
  made(vgg_like(), slow);
  slow.device.speed = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(failure(vgg_like(), slow), HasSubstr("speed"));
  options = {};
  options.micro_batches = -1;
  EXPECT_THAT(failure(vgg_like(), flat_cluster(3, 1), options), HasSubstr("found -1"));
}

TEST(Planner, StagesHavePlacesAndPayForTheLevelsTheyReach) {
  const profile::Profile profile = vgg_like();
  const plan::Plan plan = price_plan(profile, two_servers(), {{"l0", "l1"}, {"l2"}}, {2, 1}, {});
  EXPECT_EQ(plan.stages[0].first_worker, 0);
  EXPECT_EQ(plan.stages[1].first_worker, 2);
  // 2 replicas in one server: 2(r-1)/r W at 10 GB/s. The message to the other server crosses both
  // levels.
  EXPECT_EQ(plan.stages[0].sync_ns, 200);
  EXPECT_EQ(plan.prediction.bytes_per_sample,
            (std::vector<double>{2 * 10'000 + 4000 / 2.0, 2 * 10'000}));
  const plan::Plan wide = price_plan(profile, two_servers(), {{"l0", "l1"}, {"l2"}}, {3, 1}, {});
  EXPECT_EQ(wide.stages[0].sync_ns, (2 * 2 * 2000 + 2) / 3 + 10);
}

TEST(Planner, SlowerWorkersOfAStageSetItsPace) {
  cluster::Cluster cluster = flat_cluster(3, 1'000'000'000);
  cluster.groups = {
      {.first = 1, .count = 1, .device = {.name = "old", .memory_bytes = 0, .speed = 0.5}}};
  const plan::Plan plan = price_plan(vgg_like(), cluster, {{"l0"}, {"l1", "l2"}}, {2, 1}, {});
  EXPECT_EQ(plan.stages[0].forward_ns, 800'000);
  EXPECT_EQ(plan.stages[1].forward_ns, 430'000);
  cluster.groups[0].first = 0;
  EXPECT_EQ(made(vgg_like(), cluster, strategy("serial")).stages[0].first_worker, 1);
}

TEST(Planner, RecomputesWhereTheMemoryAsksForIt) {
  const profile::Profile profile =
      chain({1000, 1000, 1000, 1000, 1000, 1000}, {1, 1, 1, 1, 1, 1}, {1, 9'000, 1, 1, 9'000, 1});
  PlanOptions options = strategy("1f1b");
  options.straight = true;
  const auto cluster = flat_cluster(3, 1'000'000'000'000);
  const plan::Plan free = made(profile, cluster, options);
  for (const plan::Stage& stage : free.stages) EXPECT_FALSE(stage.recompute);
  options.memory_limit_bytes = free.stages[0].memory_bytes - 1;
  const plan::Plan tight = made(profile, cluster, options);
  EXPECT_TRUE(std::any_of(tight.stages.begin(), tight.stages.end(),
                          [](const plan::Stage& stage) { return stage.recompute; }));
  for (const plan::Stage& stage : tight.stages) {
    EXPECT_LE(stage.memory_bytes, options.memory_limit_bytes);
    if (stage.recompute) {
      EXPECT_EQ(stage.backward_ns, 2 * stage.forward_ns);
      EXPECT_EQ(stage.work_ns(), 4 * stage.forward_ns);
    }
  }
  options.recompute = Choice::Never;
  const PlanResult without = make_plan(profile, cluster, options);
  if (without.plan) {
    EXPECT_NE(without.plan->stages, tight.stages);
  }
  options.recompute = Choice::Always;
  for (const plan::Stage& stage : made(profile, cluster, options).stages)
    EXPECT_TRUE(stage.recompute);
}

TEST(Planner, MovesActivationsToTheHostWhereThatIsFasterThanRecomputing) {
  // Stages of two layers: what is between two stages is small.
  std::vector<int64_t> activations;
  for (int s = 0; s < 8; ++s) activations.insert(activations.end(), {499, 1});
  const profile::Profile profile =
      chain(std::vector<int64_t>(16, 500), std::vector<int64_t>(16, 1), activations);
  PlanOptions options = strategy("1f1b-flush");
  options.straight = true;
  options.micro_batches = 32;
  auto cluster = flat_cluster(8, 1'000'000'000'000);
  const plan::Plan free = made(profile, cluster, options);
  // Stage 0 keeps 8 stashes; 4 of them fit.
  options.memory_limit_bytes = free.stages[0].memory_bytes - 4 * free.stages[0].stash_bytes;
  const plan::Plan recomputing = made(profile, cluster, options);
  const auto recomputes = [](const plan::Stage& stage) { return stage.recompute; };
  const auto offloads = [](const plan::Stage& stage) { return stage.offload; };
  const auto any = [](const plan::Plan& plan, const auto& is) {
    return std::any_of(plan.stages.begin(), plan.stages.end(), is);
  };
  EXPECT_TRUE(any(recomputing, recomputes));
  options.offload = Choice::Auto;
  EXPECT_EQ(made(profile, cluster, options), recomputing);  // nobody knows how fast

  cluster.device.host_bytes_per_s = 1'000'000'000;  // a stash in 500 ns, F and B in 3000
  const plan::Plan moving = made(profile, cluster, options);
  EXPECT_TRUE(any(moving, offloads));
  EXPECT_FALSE(any(moving, recomputes));
  EXPECT_EQ(moving.stages[0].move_ns, 500);
  EXPECT_GT(moving.prediction.throughput_samples_per_s,
            recomputing.prediction.throughput_samples_per_s);
  EXPECT_NEAR(moving.prediction.throughput_samples_per_s, free.prediction.throughput_samples_per_s,
              0.001 * free.prediction.throughput_samples_per_s);
  for (const plan::Stage& stage : moving.stages)
    EXPECT_LE(stage.memory_bytes, options.memory_limit_bytes);

  cluster.device.host_bytes_per_s = 10'000'000;  // 50,000 ns
  EXPECT_EQ(made(profile, cluster, options).stages, recomputing.stages);

  options.offload = Choice::Always;
  options.memory_limit_bytes.reset();
  const plan::Plan slow = made(profile, cluster, options);
  for (const plan::Stage& stage : slow.stages) EXPECT_TRUE(stage.offload);
  EXPECT_GE(slow.prediction.bottleneck_ns, 50'000);
  EXPECT_EQ(plan::parse_plan(plan::to_json(slow), "plan").stages, slow.stages);
}

TEST(Planner, SaysWhyActivationsCannotMove) {
  const profile::Profile profile = chain({1000, 1000}, {1, 1}, {1, 1});
  PlanOptions options = strategy("1f1b");
  auto cluster = flat_cluster(2, 1'000'000'000);
  options.offload = Choice::Always;
  EXPECT_THAT(failure(profile, cluster, options), HasSubstr("'host_bandwidth' of [device]"));
  cluster.device.host_bytes_per_s = 1'000'000;
  cluster.groups = {{.first = 1, .count = 1, .device = {.name = "other"}}};
  EXPECT_THAT(failure(profile, cluster, options), HasSubstr("all [[devices]]"));
  cluster.groups.clear();
  options.recompute = Choice::Always;
  EXPECT_THAT(failure(profile, cluster, options), HasSubstr("one of the two choices"));
}

TEST(Planner, SharesOutTheStateWhereTheMemoryAsksForIt) {
  const profile::Profile profile = chain({1000, 1000}, {9'000, 9'000}, {1, 1});
  PlanOptions options = strategy("dp");
  options.optimizer_state_per_weight = 2;
  options.shard_optimizer = Choice::Auto;
  const auto cluster = flat_cluster(3, 1'000'000'000'000);
  const plan::Plan free = made(profile, cluster, options);
  EXPECT_FALSE(free.stages[0].shard_optimizer);
  options.memory_limit_bytes = free.stages[0].memory_bytes - 1;
  const plan::Plan tight = made(profile, cluster, options);
  EXPECT_TRUE(tight.stages[0].shard_optimizer);
  // Two thirds of the state of 2 bytes per weight byte.
  EXPECT_EQ(tight.stages[0].memory_bytes, free.stages[0].memory_bytes - 2 * 2 * 18'000 / 3);
  options.shard_optimizer = Choice::Never;
  EXPECT_FALSE(make_plan(profile, cluster, options).plan);
  options.memory_limit_bytes.reset();
  options.shard_optimizer = Choice::Always;
  EXPECT_TRUE(made(profile, cluster, options).stages[0].shard_optimizer);
  options.sync = plan::GradientSync::Asynchronous;
  EXPECT_THAT(failure(profile, cluster, options),
              HasSubstr("under the synchronisation asynchronous"));
}

TEST(Planner, AMiniBatchBoundsTheStep) {
  PlanOptions options = strategy("gpipe");
  options.mini_batch = 7;  // the profile's micro-batches have one sample
  EXPECT_EQ(made(vgg_like(), flat_cluster(3, 1'000'000'000), options).micro_batches, 7);
  options.strategy = plan::Strategy::DataParallel;
  EXPECT_EQ(made(vgg_like(), flat_cluster(3, 1'000'000'000), options).micro_batches, 6);
  options.mini_batch = 2;
  EXPECT_EQ(made(vgg_like(), flat_cluster(3, 1'000'000'000), options).micro_batches, 2);
  for (const std::string name : {"auto", "1f1b", "1f1b-flush", "serial", "mp"}) {
    options.strategy = plan::parse_strategy_choice(name);
    EXPECT_LE(made(vgg_like(), flat_cluster(4, 1'000'000'000), options).micro_batches, 2) << name;
  }
  profile::Profile profile = vgg_like();
  profile.batch_size = 4;
  EXPECT_THAT(failure(profile, flat_cluster(3, 1'000'000'000), options),
              HasSubstr("no room for 1 micro-batches of 4 samples"));
}

TEST(Planner, AFlushedPipelineShortensItsStepToFit) {
  const profile::Profile profile = chain({100, 100, 100}, {10, 10, 10}, {1000, 1000, 1000});
  PlanOptions options = strategy("gpipe");
  options.memory_limit_bytes = 9'000;
  const plan::Plan plan = made(profile, flat_cluster(3, 1'000'000'000), options);
  EXPECT_LT(plan.micro_batches, 12);
  for (const plan::Stage& stage : plan.stages) EXPECT_LE(stage.memory_bytes, 9'000);
}

// The cut in the middle has the shortest slowest stage, and by far the longest message, which one
// micro-batch at a time waits for.
TEST(Planner, APlanThatWasFoundOnTheWayIsTakenWhereItIsFaster) {
  const profile::Profile profile =
      chain({100'000, 100'000, 100'000, 100'000}, {10, 10, 10, 10}, {10, 250'000, 10, 10});
  const plan::Plan plan = made(profile, flat_cluster(2, 1'000'000'000), strategy("mp"));
  ASSERT_EQ(plan.stages.size(), 2U);
  EXPECT_NE(plan.stages[0].layers.size(), 2U);
  EXPECT_EQ(plan.explanation.optimality_gap, 0);
}

// Of the weights 1f1b keeps two versions in its first stage.
TEST(Planner, AutoTakesWhatFitsWhereThePartitionersOptimumDoesNot) {
  const profile::Profile profile = chain({100, 100}, {1'000, 1'000}, {10, 10});
  const cluster::Cluster cluster = flat_cluster(2, 1'000'000'000);
  PlanOptions options = strategy("1f1b");
  options.memory_limit_bytes = 3'500;
  const PlanResult optimum = make_plan(profile, cluster, options);
  ASSERT_FALSE(optimum.plan);
  options.strategy.reset();
  const plan::Plan plan = made(profile, cluster, options);
  EXPECT_EQ(plan.weights, schedule::WeightPolicy::Flush);
  for (const plan::Stage& stage : plan.stages) EXPECT_LE(stage.memory_bytes, 3'500);
  EXPECT_THAT(plan.explanation.notes,
              Contains(HasSubstr("Not the partitioner's optimum: no 1f1b")));
}

TEST(Planner, PlansFoundUnderOneModelArePricedUnderAnother) {
  const cluster::Cluster cluster = two_servers();
  for (const std::string& from : cost_model_names()) {
    PlanOptions options;
    options.cost_model = from;
    const plan::Plan plan = made(vgg_like(), cluster, options);
    for (const std::string& to : cost_model_names()) {
      const plan::Plan priced = reprice(plan, vgg_like(), cluster, to);
      EXPECT_EQ(priced.explanation.cost_model, to);
      EXPECT_EQ(priced.config(), plan.config());
      EXPECT_EQ(priced.stages[0].first_worker, plan.stages[0].first_worker);
      EXPECT_EQ(priced.micro_batches, plan.micro_batches);
      EXPECT_EQ(priced.prediction.throughput_samples_per_s,
                plan.prediction.throughput_samples_per_s)
          << "the simulator knows no cost models";
      if (to == from) {
        EXPECT_EQ(priced.prediction.bottleneck_ns, plan.prediction.bottleneck_ns);
      }
    }
  }
}

TEST(Planner, TheReleasedModelLeavesNoWorkerIdle) {
  PlanOptions options;
  options.cost_model = "released";
  EXPECT_EQ(made(vgg_like(), flat_cluster(5, 1'000'000), options).num_workers(), 5);
  options.cost_model = "sosp2019";
  options.use_all_workers = true;
  EXPECT_EQ(made(vgg_like(), flat_cluster(5, 1'000'000), options).num_workers(), 5);
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
