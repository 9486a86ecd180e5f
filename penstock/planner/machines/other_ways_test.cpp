#include "penstock/planner/machines/other_ways.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace penstock::planner {
namespace {

using cluster::Cluster;
using profile::LayerCost;
using profile::Profile;

Profile chain(std::vector<LayerCost> costs) {
  Profile profile;
  profile.model = "chain";
  profile.batch_size = 4;
  std::vector<graph::LayerNode> nodes;
  for (size_t l = 0; l < costs.size(); ++l) {
    const graph::ValueRef input = l == 0 ? graph::ValueRef::model_input(0)
                                         : graph::ValueRef{LayerId{static_cast<int32_t>(l) - 1}, 0};
    nodes.push_back({"layer" + std::to_string(l), "linear", {input}, 1});
  }
  profile.graph = graph::ModelGraph::build(1, nodes, {{LayerId{int32_t(costs.size()) - 1}, 0}});
  profile.costs = std::move(costs);
  return profile;
}

LayerCost layer(int64_t weights, int64_t frozen, int64_t forward_ns) {
  return {.forward_ns = forward_ns,
          .backward_ns = 2 * forward_ns,
          .output_bytes = {1'000},
          .weight_bytes = weights,
          .stash_bytes = 5'000,
          .constant_bytes = frozen};
}

Cluster flat(int workers, int64_t bandwidth, int64_t memory = 0) {
  Cluster cluster;
  cluster.levels = {{"network", workers, bandwidth, 0, false}};
  cluster.device.memory_bytes = memory;
  return cluster;
}

const OtherWay& way(const std::vector<OtherWay>& ways, const std::string& name) {
  return *std::find_if(ways.begin(), ways.end(), [&](const OtherWay& w) { return w.name == name; });
}

TEST(OtherWays, TheirFormulasByHand) {
  // 6 MB trained and 10 MB frozen, 9 ms of computing, 1 GB/s, two devices, two micro-batches each.
  const Profile profile =
      chain({layer(2'000'000, 10'000'000, 1'000'000), layer(4'000'000, 0, 2'000'000)});
  const std::vector<OtherWay> ways = other_ways(profile, flat(2, 1'000'000'000), {}, 16);
  const OtherWay& ddp = way(ways, "ddp");
  EXPECT_EQ(ddp.bytes, 6'000'000);  // 2 (n-1)/n of what is trained, once a step
  EXPECT_EQ(ddp.wire_ns, 6'000'000);
  EXPECT_EQ(ddp.compute_ns, 18'000'000);
  EXPECT_NEAR(ddp.low_samples_per_s, 16 / 0.024, 1);
  EXPECT_NEAR(ddp.high_samples_per_s, 16 / 0.018, 1);
  const OtherWay& fsdp = way(ways, "fsdp");
  EXPECT_EQ(fsdp.bytes, 2 * (2 * 16'000'000 + 6'000'000) / 2);
  EXPECT_EQ(fsdp.wire_ns, 38'000'000);
  EXPECT_EQ(fsdp.compute_ns, 18'000'000);
  // 10 frozen and 3 x 6 trained shared out over two; two layers' weights; what a pass keeps.
  EXPECT_EQ(fsdp.memory_bytes, 14'000'000 + 2 * 12'000'000 + 10'000);
  EXPECT_FALSE(way(ways, "tensor").possible);
}

TEST(OtherWays, SaysWhichDeviceHasNoRoom) {
  const Profile profile = chain({layer(8'000'000, 0, 1'000'000), layer(8'000'000, 0, 1'000'000)});
  Cluster cluster = flat(4, 1'000'000'000, 1'000'000'000);
  cluster.groups = {
      {.first = 3, .count = 1, .device = {.name = "small", .memory_bytes = 20'000'000}}};
  const std::vector<OtherWay> ways = other_ways(profile, cluster, {}, 16);
  EXPECT_EQ(way(ways, "ddp").first_without_room, 3);
  EXPECT_GT(way(ways, "ddp").memory_bytes, 32'000'000);
}

TEST(OtherWays, ATeamSendsItsSumsInEveryPass) {
  Profile profile = chain({layer(4'000'000, 0, 1'000'000), layer(4'000'000, 0, 1'000'000)});
  for (LayerCost& cost : profile.costs)
    cost.team = {.spread = 1,
                 .sums = 1,
                 .sum_bytes = 1'000'000,
                 .back_sums = 1,
                 .back_sum_bytes = 1'000'000};
  const OtherWay tensor = way(other_ways(profile, flat(2, 1'000'000'000), {}, 8), "tensor");
  EXPECT_TRUE(tensor.possible);
  EXPECT_EQ(tensor.bytes, 2 * 4'000'000);  // two micro-batches, 2 (n-1)/n = 1
  EXPECT_EQ(tensor.compute_ns, 2 * 3'000'000);
  // The planner's own price of the team has smaller products on top, and its sums.
  EXPECT_NEAR(tensor.simulated_samples_per_s / tensor.low_samples_per_s, 1, 0.05);
}

TEST(OtherWays, NumbersBeyondAllMeasureStayNumbers) {
  Profile profile = chain({layer(INT64_MAX / 4, INT64_MAX / 4, 1), layer(1, 1, INT64_MAX / 8)});
  Cluster cluster = flat(3, 1);
  cluster.levels.front().latency_ns = INT64_MAX / 2;
  for (const OtherWay& way : other_ways(profile, cluster, {}, INT64_MAX / 4)) {
    EXPECT_GE(way.bytes, 0) << way.name;
    EXPECT_GE(way.wire_ns, 0) << way.name;
    EXPECT_GE(way.memory_bytes, 0) << way.name;
    EXPECT_GE(way.low_samples_per_s, 0) << way.name;
  }
}

TEST(OtherWays, OneDeviceHasNone) {
  EXPECT_TRUE(other_ways(chain({layer(1, 0, 1)}), flat(1, 1), {}, 4).empty());
}

// The two lanes are never faster than the busier one, nor slower than one after the other.
TEST(OtherWaysProperty, ShardedDataLiesBetweenItsBounds) {
  std::mt19937 random(7);
  const auto up_to = [&](int most) { return std::uniform_int_distribution<int>(1, most)(random); };
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<LayerCost> costs;
    for (int l = up_to(8); l > 0; --l)
      costs.push_back(layer(up_to(5'000'000), up_to(5'000'000), up_to(5'000'000)));
    const Profile profile = chain(std::move(costs));
    const std::vector<OtherWay> ways =
        other_ways(profile, flat(1 + up_to(5), 1'000'000'000), {}, up_to(200));
    const OtherWay& fsdp = way(ways, "fsdp");
    EXPECT_GE(fsdp.simulated_samples_per_s, 0.999 * fsdp.low_samples_per_s) << trial;
    EXPECT_LE(fsdp.simulated_samples_per_s, 1.001 * fsdp.high_samples_per_s) << trial;
  }
}

}  // namespace
}  // namespace penstock::planner
