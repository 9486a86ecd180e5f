// Plans with teams: priced by hand, found, and compared with all that there are.
#include "penstock/planner/team_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "penstock/planner/planner.h"
#include "penstock/planner/testing/testing_llama.h"
#include "penstock/planner/what_if.h"
#include "penstock/schedule/plan_shape.h"
#include "penstock/simulate/simulate_plan.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/rng.h"
#include "tests/support/mutate.h"

namespace penstock::planner {
namespace {

using plan::Plan;
using plan::Stage;
using plan::Strategy;
using ::testing::HasSubstr;

double samples_per_s_of(const Plan& plan) { return plan.prediction.throughput_samples_per_s; }

/// Runs of layers as equal as can be.
std::vector<Stage> even_stages(const profile::Profile& profile, int count, int replicas, int team) {
  std::vector<Stage> stages(static_cast<size_t>(count));
  const int layers = profile.graph.num_layers();
  for (int l = 0; l < layers; ++l) {
    stages[static_cast<size_t>(l * count / layers)].layers.push_back(
        profile.graph.layers()[static_cast<size_t>(l)].name);
  }
  int next = 0;
  for (Stage& stage : stages) {
    stage.replicas = replicas;
    stage.tensor = team;
    stage.first_worker = next;
    next += replicas * team;
  }
  return stages;
}

/// A chain of layers with shares of their own.
profile::Profile chain_with_teams(Rng& rng, int layers) {
  profile::Profile profile;
  profile.batch_size = 1;
  std::vector<graph::LayerNode> nodes;
  const auto up_to = [&](uint64_t most) { return static_cast<int64_t>(1 + rng.below(most)); };
  for (int l = 0; l < layers; ++l) {
    nodes.push_back(
        {"layer" + std::to_string(l),
         "linear",
         {l == 0 ? graph::ValueRef::model_input(0) : graph::ValueRef{LayerId{l - 1}, 0}},
         1});
    profile.costs.push_back({.forward_ns = up_to(400'000),
                             .backward_ns = up_to(800'000),
                             .step_ns = up_to(20'000),
                             .output_bytes = {up_to(200'000)},
                             .weight_bytes = up_to(1'000'000),
                             .stash_bytes = up_to(400'000)});
    if (rng.below(3) == 0) continue;
    profile.costs.back().team = {.spread = rng.uniform(),
                                 .spread_stash = rng.uniform(),
                                 .sums = 1,
                                 .sum_bytes = up_to(100'000),
                                 .back_sums = 1,
                                 .back_sum_bytes = up_to(100'000)};
  }
  profile.graph = graph::ModelGraph::build(1, std::move(nodes), {{LayerId{layers - 1}, 0}});
  return profile;
}

cluster::Cluster chain_servers() {
  return {.levels = {{.name = "server",
                      .count = 2,
                      .bandwidth_bytes_per_s = 4'000'000'000,
                      .latency_ns = 2'000},
                     {.name = "rack",
                      .count = 2,
                      .bandwidth_bytes_per_s = 400'000'000,
                      .latency_ns = 10'000}},
          .device = {}};
}

/// Every split of a chain over four workers of two servers, with every team that fits.
void for_each_split(const profile::Profile& profile,
                    const std::function<void(const std::vector<Stage>&)>& visit) {
  const int layers = profile.graph.num_layers();
  std::function<void(int, int, std::vector<Stage>)> extend = [&](int from, int worker,
                                                                 std::vector<Stage> stages) {
    if (from == layers) return visit(stages);
    for (int end = from + 1; end <= layers; ++end) {
      Stage stage;
      for (int l = from; l < end; ++l) stage.layers.push_back("layer" + std::to_string(l));
      for (const int team : {1, 2}) {
        for (int replicas = 1; worker + replicas * team <= 4; ++replicas) {
          if (worker % team != 0) continue;
          stage.replicas = replicas;
          stage.tensor = team;
          stage.first_worker = worker;
          std::vector<Stage> longer = stages;
          longer.push_back(stage);
          extend(end, worker + replicas * team, longer);
        }
      }
    }
  };
  extend(0, 0, {});
}

PlanOptions flushed() {
  PlanOptions options;
  options.weights = plan::WeightPolicy::Flush;
  return options;
}

}  // namespace

// Each is 0.4 % slower than the one before: the smallest teams would be 1.2 % slower.
TEST(TeamPlan, SmallLossesFromSizeToSizeDoNotAddUp) {
  EXPECT_EQ(smallest_of_fastest({1000, 996, 992, 988}), 1);
  EXPECT_EQ(smallest_of_fastest({1000, 990, 996, 970}), 2);
  EXPECT_EQ(smallest_of_fastest({900, 1000, 0}), 1);
  EXPECT_EQ(smallest_of_fastest({1000, 0, 999}), 2);
  EXPECT_EQ(smallest_of_fastest({0, 0}), 1);
  EXPECT_EQ(smallest_of_fastest({5}), 0);
}

TEST(TeamPlan, IsPricedAsItIsSimulated) {
  const profile::Profile profile = testing_llama::decoder_profile({.blocks = 4});
  const cluster::Cluster cluster = testing_llama::v100_servers(2);
  PlanOptions options;
  options.strategy = Strategy::OneFOneBFlush;
  options.micro_batches = 16;
  const Plan plan = price_plan(profile, cluster, even_stages(profile, 2, 1, 4), options);
  EXPECT_EQ(plan.config(), "1t4-1t4");
  EXPECT_EQ(plan.num_workers(), 8);
  EXPECT_GT(plan.stages[0].team_bytes, 0);
  const simulate::Result result = simulate::simulate_plan(plan, 16, {});
  EXPECT_NEAR(samples_per_s_of(plan) / result.throughput_samples_per_s, 1, 0.01);
  for (const Stage& stage : plan.stages) EXPECT_GT(stage.memory_bytes, 0);
  // The plan is whole, valid and priced anew to the same numbers.
  const Plan again = reprice(plan, profile, cluster, "penstock");
  EXPECT_EQ(again.stages, plan.stages);
  EXPECT_EQ(again.prediction, plan.prediction);
  EXPECT_EQ(plan::parse_plan(plan::to_json(plan), "p.json"), plan);
}

TEST(TeamPlan, TeamsOfSeveralSizesArePricedAsTheyAreSimulated) {
  const profile::Profile profile = testing_llama::decoder_profile({.blocks = 4});
  const cluster::Cluster cluster = testing_llama::v100_servers(2);
  PlanOptions options;
  options.strategy = Strategy::OneFOneBFlush;
  options.micro_batches = 16;
  std::vector<Stage> stages = even_stages(profile, 3, 1, 1);
  for (const auto& [s, team, replicas] : {std::tuple{0, 4, 1}, {1, 1, 2}, {2, 2, 1}}) {
    stages[static_cast<size_t>(s)].tensor = team;
    stages[static_cast<size_t>(s)].replicas = replicas;
    stages[static_cast<size_t>(s)].first_worker = s == 0 ? 0 : s == 1 ? 4 : 6;
  }
  const Plan plan = price_plan(profile, cluster, stages, options);
  EXPECT_EQ(plan.config(), "1t4-2-1t2");
  EXPECT_EQ(plan.depth, 4);  // stage 0 has three teams or workers behind it
  EXPECT_NEAR(
      samples_per_s_of(plan) / simulate::simulate_plan(plan, 16, {}).throughput_samples_per_s, 1,
      0.01);
  // Each stage costs what it costs in a plan of its own size of teams.
  for (const int team : {1, 2, 4}) {
    std::vector<Stage> alike = stages;
    int next = 0;
    for (Stage& stage : alike) {
      stage.tensor = team;
      stage.replicas = 1;
      stage.first_worker = next;
      next += team;
    }
    if (next > cluster.num_workers()) continue;
    const Plan other = price_plan(profile, cluster, alike, options);
    for (size_t s = 0; s < stages.size(); ++s) {
      if (stages[s].tensor != team) continue;
      EXPECT_EQ(plan.stages[s].forward_ns, other.stages[s].forward_ns);
      EXPECT_EQ(plan.stages[s].weight_bytes, other.stages[s].weight_bytes);
    }
  }
}

// What crosses each level, counted by hand: sums of teams inside servers, and each member's message
// between them.
TEST(TeamPlan, BytesAreThoseOfAllMembers) {
  const testing_llama::Decoder sizes{.blocks = 4};
  const profile::Profile profile = testing_llama::decoder_profile(sizes);
  PlanOptions options;
  options.strategy = Strategy::OneFOneBFlush;
  options.micro_batches = 16;
  const Plan plan =
      price_plan(profile, testing_llama::v100_servers(2), even_stages(profile, 2, 1, 4), options);
  const double tensor = 2.0 * static_cast<double>(sizes.length * sizes.hidden);
  const double messages = 4 * 2 * tensor;  // four members, there and back
  // Eight layers of blocks with two sums, embedding and head with one; a ring sends 2 (t-1) of
  // them.
  const double sums = (2 * 8 + 2) * tensor * 2 * 3;
  ASSERT_EQ(plan.prediction.bytes_per_sample.size(), 2);
  EXPECT_NEAR(plan.prediction.bytes_per_sample[0], sums + messages, 1e-6 * sums);
  EXPECT_NEAR(plan.prediction.bytes_per_sample[1], messages, 1e-6 * messages);
}

TEST(TeamPlan, MembersNeedLessMemoryThanAWholeStage) {
  const profile::Profile profile = testing_llama::decoder_profile({.blocks = 4});
  const cluster::Cluster cluster = testing_llama::v100_servers(2);
  PlanOptions options;
  options.strategy = Strategy::OneFOneBFlush;
  options.micro_batches = 16;
  const Plan whole = price_plan(profile, cluster, even_stages(profile, 2, 1, 1), options);
  const Plan teams = price_plan(profile, cluster, even_stages(profile, 2, 1, 4), options);
  for (size_t s = 0; s < 2; ++s) {
    EXPECT_LT(teams.stages[s].memory_bytes, whole.stages[s].memory_bytes / 2);
    EXPECT_LT(teams.stages[s].weight_bytes,
              0.27 * static_cast<double>(whole.stages[s].weight_bytes));
    EXPECT_LT(teams.stages[s].forward_ns, whole.stages[s].forward_ns / 2);
  }
}

// As in Korthikanti et al. 2022 (section 4.2.2), where norms and inputs are divided, too.
profile::Profile with_places(profile::Profile profile) {
  for (profile::LayerCost& cost : profile.costs) {
    if (cost.team.spread_stash > 0)
      cost.team.sequence = {.work = 1, .stash = 1, .sums = 1, .sum_bytes = 4 * 4096};
  }
  return profile;
}

TEST(TeamPlan, MembersThatShareOutPlacesNeedLessMemory) {
  const profile::Profile profile = with_places(testing_llama::decoder_profile({.blocks = 4}));
  const cluster::Cluster cluster = testing_llama::v100_servers(2);
  PlanOptions options;
  options.strategy = Strategy::OneFOneBFlush;
  options.micro_batches = 16;
  std::vector<Stage> stages = even_stages(profile, 2, 1, 4);
  const Plan without = price_plan(profile, cluster, stages, options);
  stages[0].sequence = true;
  const Plan with = price_plan(profile, cluster, stages, options);
  EXPECT_TRUE(with.stages[0].sequence);
  EXPECT_LT(with.stages[0].memory_bytes, without.stages[0].memory_bytes);
  EXPECT_EQ(with.stages[1], without.stages[1]);
  // The same bytes, but for gradients of norms.
  EXPECT_GT(with.stages[0].team_bytes, without.stages[0].team_bytes);
  EXPECT_LT(static_cast<double>(with.stages[0].team_bytes),
            1.001 * static_cast<double>(without.stages[0].team_bytes));
  EXPECT_EQ(reprice(with, profile, cluster, "penstock").stages, with.stages);
  EXPECT_EQ(plan::parse_plan(plan::to_json(with), "p.json"), with);
}

TEST(TeamPlan, SaysWhereThereAreNoPlacesToShareOut) {
  const profile::Profile profile = testing_llama::decoder_profile({.blocks = 2});
  PlanOptions options = flushed();
  options.tensor = 2;
  const auto says_so = [&] {
    const PlanResult result = make_plan(profile, testing_llama::v100_servers(1), options);
    const std::vector<std::string>& notes = result.plan.value().explanation.notes;
    return std::ranges::any_of(notes, [](const std::string& note) {
      return note.find("sequence parallelism saves nothing") != std::string::npos;
    });
  };
  EXPECT_FALSE(says_so());
  options.sequence = Choice::Always;
  EXPECT_TRUE(says_so());
}

TEST(TeamPlan, PlacesAreSharedOutWhereMemoryAsksForIt) {
  const profile::Profile profile = with_places(testing_llama::decoder_profile({.blocks = 4}));
  const cluster::Cluster cluster = testing_llama::v100_servers(1);
  PlanOptions options;
  options.tensor = 4;
  options.micro_batches = 4;
  options.recompute = Choice::Never;
  const auto planned = [&](Choice sequence) {
    options.sequence = sequence;
    return make_plan(profile, cluster, options);
  };
  const PlanResult never = planned(Choice::Never);
  const PlanResult always = planned(Choice::Always);
  ASSERT_TRUE(never.plan && always.plan);
  EXPECT_FALSE(planned(Choice::Auto).plan->stages[0].sequence);
  const int64_t most = never.plan->stages[0].memory_bytes;
  const int64_t least = always.plan->stages[0].memory_bytes;
  ASSERT_LT(least, most);
  options.memory_limit_bytes = (least + most) / 2;
  EXPECT_FALSE(planned(Choice::Never).plan);
  const PlanResult chosen = planned(Choice::Auto);
  ASSERT_TRUE(chosen.plan) << chosen.reason;
  EXPECT_TRUE(chosen.plan->stages[0].sequence);
  EXPECT_LE(chosen.plan->stages[0].memory_bytes, *options.memory_limit_bytes);
  EXPECT_THAT(chosen.plan->explanation.notes,
              ::testing::Contains(::testing::HasSubstr("share out the places of sequences")));
}

TEST(TeamPlan, StagesOfOneWorkerHaveTeams) {
  const profile::Profile profile = testing_llama::decoder_profile({.blocks = 4});
  PlanOptions options;
  options.strategy = Strategy::ZbV;
  options.micro_batches = 8;
  std::vector<Stage> stages = even_stages(profile, 4, 1, 2);
  for (Stage& stage : stages) stage.first_worker = -1;
  const Plan plan =
      price_placed_plan(profile, testing_llama::v100_servers(1), stages, {0, 1, 1, 0}, options);
  EXPECT_EQ(plan.config(), "2x2 chunks, teams of 2");
  EXPECT_EQ(plan.num_workers(), 4);
  EXPECT_NEAR(
      samples_per_s_of(plan) / simulate::simulate_plan(plan, 32, {}).throughput_samples_per_s, 1,
      0.02);
  stages[1].tensor = stages[2].tensor = 1;
  EXPECT_THROW((void)price_placed_plan(profile, testing_llama::v100_servers(1), stages,
                                       {0, 1, 1, 0}, options),
               ConfigError);
}

TEST(TeamPlan, OptionsThatCannotBeAreRefused) {
  const profile::Profile profile = testing_llama::decoder_profile({.blocks = 2});
  const cluster::Cluster cluster = testing_llama::v100_servers(2);
  PlanOptions options;
  options.tensor = 3;
  EXPECT_THAT(tests::message_of<ConfigError>([&] { (void)make_plan(profile, cluster, options); }),
              HasSubstr("teams of 3 members do not fit the cluster: expected one of 1, 2, 4"));
  options.tensor = 0;
  EXPECT_THAT(tests::message_of<ConfigError>([&] { (void)make_plan(profile, cluster, options); }),
              HasSubstr("teams of at least 1 member, found 0"));
  profile::Profile whole = profile;
  for (profile::LayerCost& cost : whole.costs) cost.team = {};
  options.tensor = 2;
  EXPECT_THAT(tests::message_of<ConfigError>([&] { (void)make_plan(whole, cluster, options); }),
              HasSubstr("the profile says of no layer"));
  options.tensor.reset();
  EXPECT_TRUE(make_plan(whole, cluster, options).plan->teams().empty());
}

TEST(TeamPlan, AFixedSizeIsThatOfEveryStage) {
  const profile::Profile profile = testing_llama::decoder_profile({.blocks = 4});
  PlanOptions options = flushed();
  options.tensor = 2;
  options.mini_batch = 16;
  const PlanResult result = make_plan(profile, testing_llama::v100_servers(2), options);
  ASSERT_TRUE(result.plan) << result.reason;
  for (const Stage& stage : result.plan->stages) EXPECT_EQ(stage.tensor, 2);
  EXPECT_LE(result.plan->num_workers(), 8);
  plan::validate(*result.plan);
}

TEST(TeamPlan, SaysBetweenWhichRatesARunShouldLie) {
  profile::Profile profile = testing_llama::decoder_profile({.blocks = 4});
  profile.pass = {.mean_ns = 1'000'000'000, .spread = 0.02, .error = 0.01, .stretches = 4};
  PlanOptions options = flushed();
  options.tensor = 2;
  options.mini_batch = 16;
  const PlanResult result = make_plan(profile, testing_llama::v100_servers(2), options);
  ASSERT_TRUE(result.plan) << result.reason;
  const plan::Prediction& prediction = result.plan->prediction;
  EXPECT_GT(prediction.throughput_low_samples_per_s, 0);
  EXPECT_LT(prediction.throughput_low_samples_per_s, prediction.throughput_samples_per_s);
  EXPECT_GT(prediction.throughput_high_samples_per_s, prediction.throughput_samples_per_s);
}

TEST(TeamPlan, SlowLinksAreNoPlaceForTeams) {
  const profile::Profile profile = testing_llama::decoder_profile({.blocks = 2});
  cluster::Cluster slow{.levels = {{.name = "network",
                                    .count = 4,
                                    .bandwidth_bytes_per_s = 125'000'000,
                                    .latency_ns = 100'000}},
                        .device = {}};
  PlanOptions options = flushed();
  options.tensor.reset();
  options.mini_batch = 32;
  const PlanResult result = make_plan(profile, slow, options);
  ASSERT_TRUE(result.plan) << result.reason;
  EXPECT_TRUE(result.plan->teams().empty()) << result.plan->config();
}

// Every split of small chains, with every team, through the simulator. What a search of whole
// stages misses by itself is set apart: it looks for the least bottleneck, not for the fastest
// simulation.
TEST(TeamPlan, SmallChainsGetTheTeamsOfTheBestSplit) {
  Rng rng(5);
  int need_teams = 0;
  const char* asked = std::getenv("PENSTOCK_TRIALS");
  const int runs = asked == nullptr ? 24 : std::atoi(asked);
  for (int run = 0; run < runs; ++run) {
    const profile::Profile profile = chain_with_teams(rng, 4);
    PlanOptions options = flushed();
    options.strategy = Strategy::OneFOneBFlush;
    options.micro_batches = 1 + run % 3;
    const double whole = samples_per_s_of(*make_plan(profile, chain_servers(), options).plan);
    options.tensor.reset();
    const PlanResult found = make_plan(profile, chain_servers(), options);
    ASSERT_TRUE(found.plan) << found.reason;
    PlanOptions priced = options;
    priced.tensor = 1;
    double best = 0;
    double best_whole = 0;
    std::string best_config;
    for_each_split(profile, [&](const std::vector<Stage>& stages) {
      if (stages.size() < 2) return;  // as the strategy asks for
      const Plan plan = price_plan(profile, chain_servers(), stages, priced);
      const double rate = samples_per_s_of(plan);
      if (rate > best) best_config = plan.config();
      best = std::max(best, rate);
      if (plan.teams().empty()) best_whole = std::max(best_whole, rate);
    });
    const double reached = samples_per_s_of(*found.plan);
    EXPECT_GE(reached, whole);
    if (best < 1.01 * best_whole) continue;
    ++need_teams;
    EXPECT_GT(reached, 0.95 * best)
        << "run " << run << ": " << found.plan->config() << " found, the best is " << best_config;
  }
  EXPECT_GT(need_teams, 3);
}

TEST(TeamPlan, ALargeDecoderGetsTheBestSizes) {
  const profile::Profile profile = testing_llama::decoder_profile();
  const cluster::Cluster cluster = testing_llama::v100_servers();
  PlanOptions options = flushed();
  options.tensor.reset();
  options.mini_batch = 32;
  options.optimizer_state_per_weight = 2;
  // The plan is found within one second; slow test machines get more.
  options.time_limit = std::chrono::seconds(3);
  const auto begin = std::chrono::steady_clock::now();
  const PlanResult found = make_plan(profile, cluster, options);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  ASSERT_TRUE(found.plan) << found.reason;
  RecordProperty("seconds", std::to_string(took.count()));
  RecordProperty("config", found.plan->config());
  // Inside servers, over the slow links stages.
  EXPECT_FALSE(found.plan->teams().empty()) << found.plan->config();
  for (const int team : {1, 2, 4, 8, 16}) {
    for (int stages = 1; stages * team <= 16; ++stages) {
      const int replicas = 16 / (stages * team);
      for (const Strategy strategy : {Strategy::OneFOneBFlush, Strategy::GPipe, Strategy::ZbH1}) {
        PlanOptions own = options;
        own.tensor = 1;
        own.strategy = strategy;
        own.mini_batch.reset();
        own.micro_batches = 32;
        if (strategy != Strategy::OneFOneBFlush && replicas > 1) continue;
        Plan plan;
        try {
          plan = price_plan(profile, cluster, even_stages(profile, stages, replicas, team), own);
        } catch (const ConfigError&) {
          continue;
        }
        const bool fits =
            std::all_of(plan.stages.begin(), plan.stages.end(),
                        [](const Stage& stage) { return stage.memory_bytes <= 32'000'000'000; });
        if (!fits) continue;
        EXPECT_GT(samples_per_s_of(*found.plan), 0.995 * samples_per_s_of(plan))
            << to_string(strategy) << " " << plan.config() << " against "
            << to_string(found.plan->strategy) << " " << found.plan->config();
      }
    }
  }
}

}  // namespace penstock::planner
