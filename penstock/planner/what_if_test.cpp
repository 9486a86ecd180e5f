#include "penstock/planner/what_if.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "penstock/util/error.h"
#include "penstock/util/text/units.h"

namespace penstock::planner {
namespace {

using cluster::Cluster;

profile::Profile uneven_chain(int layers) {
  profile::Profile profile;
  profile.model = "chain";
  profile.batch_size = 8;
  std::vector<graph::LayerNode> nodes;
  for (int l = 0; l < layers; ++l) {
    const graph::ValueRef input =
        l == 0 ? graph::ValueRef::model_input(0) : graph::ValueRef{LayerId{l - 1}, 0};
    nodes.push_back({"layer" + std::to_string(l), "linear", {input}, 1});
    profile.costs.push_back({.forward_ns = 1'000'000 * (1 + l % 3),
                             .backward_ns = 2'000'000 * (1 + l % 3),
                             .backward_weight_ns = 2'000'000 * (1 + l % 3),
                             .output_bytes = {100'000},
                             .weight_bytes = 4'000'000,
                             .stash_bytes = 1'000'000});
  }
  profile.graph = graph::ModelGraph::build(1, nodes, {{LayerId{layers - 1}, 0}});
  return profile;
}

Cluster flat(int workers) {
  Cluster cluster;
  cluster.levels = {{"net", workers, 1'000'000'000, 20'000, false}};
  return cluster;
}

Cluster two_servers_of_two() {
  Cluster cluster;
  cluster.levels = {{"server", 2, 10'000'000'000, 5'000, false},
                    {"rack", 2, 1'000'000'000, 20'000, false}};
  return cluster;
}

std::vector<plan::WhatIfResult> answers(const Cluster& cluster, const PlanOptions& options = {}) {
  const profile::Profile profile = uneven_chain(6);
  const PlanResult result = make_plan(profile, cluster, options);
  if (!result.plan) throw ConfigError(result.reason);
  return what_if(profile, cluster, options, *result.plan);
}

const plan::WhatIfResult* find_answer(const std::vector<plan::WhatIfResult>& answers,
                                      std::string_view change) {
  const auto found = std::find_if(answers.begin(), answers.end(),
                                  [&](const plan::WhatIfResult& a) { return a.change == change; });
  return found == answers.end() ? nullptr : &*found;
}

std::vector<std::string> names(const std::vector<plan::WhatIfResult>& answers) {
  std::vector<std::string> names;
  for (const plan::WhatIfResult& answer : answers) names.push_back(answer.change);
  return names;
}

}  // namespace

TEST(WhatIf, AsksOfAFlatClusterForWorkersBandwidthLatencyMemoryAndSpeed) {
  PlanOptions options;
  options.strategy = plan::Strategy::OneFOneB;
  std::vector<std::string> asked = names(answers(flat(3), options));
  ASSERT_EQ(asked.size(), 7u);
  int64_t used = 0;
  const PlanResult result = make_plan(uneven_chain(6), flat(3), options);
  ASSERT_TRUE(result.plan);
  for (const plan::Stage& stage : result.plan->stages) used = std::max(used, stage.memory_bytes);
  EXPECT_EQ(asked[4], "half the memory it uses (" + format_bytes(used / 2) + ")");
  asked.erase(asked.begin() + 4);
  EXPECT_EQ(asked.back().substr(0, 20), "the layers of stage ");
  asked.pop_back();
  EXPECT_EQ(asked,
            (std::vector<std::string>{"one more worker", "one worker fewer", "twice the bandwidth",
                                      "half the latency", "every worker twice as fast"}));
}

TEST(WhatIf, AsksForServersAndForEachLevelsBandwidthWhereThereAreLevels) {
  const std::vector<std::string> asked = names(answers(two_servers_of_two()));
  for (const char* change :
       {"one more server", "one server fewer", "one more worker in each server",
        "one worker fewer in each server", "twice the bandwidth of level server",
        "twice the bandwidth of level rack", "half the latency"}) {
    EXPECT_EQ(std::count(asked.begin(), asked.end(), change), 1) << change;
  }
  EXPECT_EQ(std::set<std::string>(asked.begin(), asked.end()).size(), asked.size());
}

TEST(WhatIf, KeepsTheSameNumberOfWorkersBehindEachSwitch) {
  Cluster cluster = two_servers_of_two();
  cluster.levels[0].count = 4;
  cluster.levels[0].machine = true;
  cluster.machine = {.switches = 2,
                     .device_bytes_per_s = 10'000'000'000,
                     .switch_bytes_per_s = 10'000'000'000,
                     .cross_bytes_per_s = 8'000'000'000};
  const std::vector<plan::WhatIfResult> all = answers(cluster);
  for (const char* change : {"one more server", "one server fewer", "2 more workers in each server",
                             "2 workers fewer in each server"}) {
    ASSERT_NE(find_answer(all, change), nullptr) << change;
    EXPECT_TRUE(find_answer(all, change)->feasible) << find_answer(all, change)->reason;
  }
  // One machine alone, and its links with it.
  cluster.levels.pop_back();
  const std::vector<plan::WhatIfResult> one = answers(cluster);
  ASSERT_NE(find_answer(one, "2 more workers"), nullptr);
  EXPECT_TRUE(find_answer(one, "2 more workers")->feasible);
  ASSERT_NE(find_answer(one, "2 workers fewer"), nullptr);
  PlanOptions options;
  options.strategy = plan::Strategy::DataParallel;
  options.sync = plan::GradientSync::Hierarchical;
  const plan::WhatIfResult faster = *find_answer(answers(cluster, options), "twice the bandwidth");
  EXPECT_GT(faster.speedup, 1.001);
}

TEST(WhatIf, EachAnswerIsThePlanForTheChangedCluster) {
  const std::vector<plan::WhatIfResult> all = answers(flat(3));
  const profile::Profile profile = uneven_chain(6);
  const PlanResult before = make_plan(profile, flat(3), {});
  const PlanResult after = make_plan(profile, flat(4), {});
  ASSERT_TRUE(before.plan && after.plan);
  const plan::WhatIfResult* more = find_answer(all, "one more worker");
  ASSERT_NE(more, nullptr);
  EXPECT_TRUE(more->feasible);
  EXPECT_EQ(more->config, after.plan->config());
  EXPECT_EQ(more->strategy, after.plan->strategy);
  EXPECT_EQ(more->throughput_samples_per_s, after.plan->prediction.throughput_samples_per_s);
  EXPECT_DOUBLE_EQ(more->speedup, after.plan->prediction.throughput_samples_per_s /
                                      before.plan->prediction.throughput_samples_per_s);
}

TEST(WhatIf, DoubleSpeedOfTheWorkersHelpsAndOneFewerDoesNot) {
  const std::vector<plan::WhatIfResult> all = answers(flat(3));
  EXPECT_GT(find_answer(all, "every worker twice as fast")->speedup, 1.2);
  EXPECT_LE(find_answer(all, "one worker fewer")->speedup, 1.0001);
}

TEST(WhatIf, MemoryChangesTheLimitOfWhoeverSetIt) {
  PlanOptions options;
  options.memory_limit_bytes = 1'000'000'000;
  const std::vector<plan::WhatIfResult> by_option = answers(flat(2), options);
  EXPECT_NE(find_answer(by_option, "half the memory (500 MB per worker)"), nullptr);
  EXPECT_NE(find_answer(by_option, "twice the memory (2.00 GB per worker)"), nullptr);
  Cluster cluster = flat(2);
  cluster.device.memory_bytes = 800'000'000;
  const std::vector<plan::WhatIfResult> by_device = answers(cluster);
  EXPECT_NE(find_answer(by_device, "half the memory (400 MB per worker)"), nullptr);
  EXPECT_NE(find_answer(by_device, "twice the memory (1.60 GB per worker)"), nullptr);
}

TEST(WhatIf, AnInfeasibleChangeSaysWhy) {
  PlanOptions options;
  options.strategy = plan::Strategy::Serial;
  const std::vector<plan::WhatIfResult> all = answers(flat(1), options);
  const auto half = std::find_if(all.begin(), all.end(), [](const plan::WhatIfResult& a) {
    return a.change.starts_with("half the memory");
  });
  ASSERT_NE(half, all.end());
  EXPECT_FALSE(half->feasible);
  EXPECT_NE(half->reason.find("layer"), std::string::npos) << half->reason;
  EXPECT_EQ(half->throughput_samples_per_s, 0);
  EXPECT_EQ(find_answer(all, "one worker fewer"), nullptr);
}

TEST(WhatIf, UnequalDevicesKeepTheirPlaces) {
  Cluster cluster = two_servers_of_two();
  cluster.groups = {{.first = 2, .count = 2, .device = {"old", 0, 0.5}}};
  const std::vector<plan::WhatIfResult> all = answers(cluster);
  EXPECT_NE(find_answer(all, "one server fewer"), nullptr);
  EXPECT_TRUE(find_answer(all, "one server fewer")->feasible)
      << find_answer(all, "one server fewer")->reason;
  EXPECT_EQ(find_answer(all, "one more worker in each server"), nullptr);
}

TEST(WhatIf, ReportsProgressAndRefusesABrokenCluster) {
  const profile::Profile profile = uneven_chain(3);
  const PlanResult result = make_plan(profile, flat(2), {});
  ASSERT_TRUE(result.plan);
  std::vector<int> seen;
  const auto all = what_if(profile, flat(2), {}, *result.plan,
                           [&](int done, int total) { seen.push_back(done * 100 + total); });
  ASSERT_EQ(seen.size(), all.size());
  EXPECT_EQ(seen.back(), static_cast<int>(all.size()) * 101);
  EXPECT_THROW(what_if(profile, Cluster{}, {}, *result.plan), ConfigError);
}

}  // namespace penstock::planner
