#include "penstock/simulate/network.h"

#include <gtest/gtest.h>

#include "penstock/simulate/simulator.h"
#include "penstock/util/error.h"

namespace penstock::simulate {
namespace {

cluster::Cluster two_levels() {
  return {.levels = {{.name = "server", .count = 4, .bandwidth_bytes_per_s = 10'000'000'000, .latency_ns = 5},
                     {.name = "rack", .count = 2, .bandwidth_bytes_per_s = 1'000'000'000, .latency_ns = 20}},
          .device = {}};
}

TEST(Network, IsAsSlowAsItsSlowestLevel) {
  const Network network = flat_network(two_levels());
  EXPECT_EQ(network.bandwidth_bytes_per_s, 1'000'000'000);
  EXPECT_EQ(network.latency_ns, 25);
  EXPECT_EQ(network.levels_joined, 2);
}

TEST(Network, LevelsOfOneUnitJoinNothing) {
  cluster::Cluster cluster = two_levels();
  cluster.levels[1].count = 1;
  const Network network = flat_network(cluster);
  EXPECT_EQ(network.bandwidth_bytes_per_s, 10'000'000'000);
  EXPECT_EQ(network.latency_ns, 5);
  EXPECT_EQ(network.levels_joined, 1);
}

TEST(Network, OnlyAnOutermostLevelByReferenceSparesMessagesTheirBytes) {
  cluster::Cluster cluster = two_levels();
  cluster.levels[0].by_reference = true;
  EXPECT_FALSE(flat_network(cluster).by_reference);
  cluster.levels[1].count = 1;
  EXPECT_TRUE(flat_network(cluster).by_reference);
}

TEST(Network, TransferTimesRoundUpAndSaturate) {
  EXPECT_EQ(transfer_ns(1, 1'000'000'000), 1);
  EXPECT_EQ(transfer_ns(1, 3'000'000'000), 1);
  EXPECT_EQ(transfer_ns(1000, 0), 0);
  EXPECT_EQ(transfer_ns(INT64_MAX, 1), INT64_MAX);
}

TEST(Network, SyncMovesTwiceTheWeightsButOneShare) {
  const Network network{.bandwidth_bytes_per_s = 1'000'000'000, .latency_ns = 7};
  EXPECT_EQ(sync_ns(1000, 1, network), 0);
  EXPECT_EQ(sync_ns(1000, 2, network), 1000 + 7);
  EXPECT_EQ(sync_ns(1000, 4, network), 1500 + 7);
  EXPECT_EQ(sync_ns(INT64_MAX, 4096, Network{.bandwidth_bytes_per_s = 1}), INT64_MAX);
}

TEST(Network, CostsOfAPlanCarryItsStagesLinksAndNetwork) {
  plan::Plan plan;
  plan.cluster = two_levels();
  plan.micro_batch_size = 32;
  plan.stages = {{.layers = {"a"}, .forward_ns = 1, .backward_ns = 2, .weight_bytes = 3}, {.layers = {"b"}, .stash_bytes = 4}};
  plan.links = {{StageId{0}, StageId{1}, 99}};
  const Costs costs = costs_of(plan);
  ASSERT_EQ(costs.stages.size(), 2u);
  EXPECT_EQ(costs.stages[0].backward_ns, 2);
  EXPECT_EQ(costs.stages[1].stash_bytes, 4);
  ASSERT_EQ(costs.links.size(), 1u);
  EXPECT_EQ(costs.links[0].bytes, 99);
  EXPECT_EQ(costs.bandwidth_bytes_per_s, 1'000'000'000);
  EXPECT_EQ(costs.latency_ns, 25);
  EXPECT_EQ(costs.samples_per_micro_batch, 32);

  plan.cluster.levels = {{.name = "process", .count = 2, .bandwidth_bytes_per_s = 5, .by_reference = true}};
  EXPECT_EQ(costs_of(plan).bandwidth_bytes_per_s, 0);
}

}  // namespace
}  // namespace penstock::simulate
