#include "penstock/planner/partition/dp_partitioner.h"

#include <gtest/gtest.h>

#include "penstock/planner/cost/named_models.h"
#include "penstock/planner/testing/testing_graphs.h"
#include "penstock/util/error.h"

namespace penstock::planner {
namespace {

using testing_graphs::chain;
using testing_graphs::flat_cluster;

struct Options {
  std::string model = "sosp2019";
  int workers = 0;  // 0: all
  int64_t memory_limit_bytes = 0;
  Choice recompute = Choice::Never;
  bool straight = false;
  bool use_all_workers = false;
};

std::optional<Partition> find(const profile::Profile& profile, const cluster::Cluster& cluster,
                              const Options& options) {
  const auto model = make_cost_model(options.model, cluster, GradientSync::Ring);
  const CutStates states(profile.graph, testing_graphs::planned_layers(profile));
  return best_partition({.states = states,
                         .model = *model,
                         .memory = {.limit_bytes = options.memory_limit_bytes},
                         .recompute = options.recompute,
                         .cluster = cluster,
                         .workers = options.workers > 0 ? options.workers : cluster.num_workers(),
                         .straight = options.straight,
                         .use_all_workers = options.use_all_workers});
}

Partition partition_of(const profile::Profile& profile, const cluster::Cluster& cluster,
                       const Options& options = {}) {
  return find(profile, cluster, options).value();
}

cluster::Cluster servers(int count, int gpus, int64_t inside, int64_t outside) {
  return {.levels = {{.name = "server", .count = gpus, .bandwidth_bytes_per_s = inside},
                     {.name = "rack", .count = count, .bandwidth_bytes_per_s = outside}}};
}

// The shape of VGG-16: much computation on few weights, then little on many.
const profile::Profile kHeavyThenWide = chain({500, 500, 30}, {1, 1, 1'000'000}, {100, 100, 1});

TEST(DpPartitioner, ReplicatesTheHeavyLayersAndIsolatesTheWeights) {
  EXPECT_EQ(partition_of(kHeavyThenWide, flat_cluster(8, 1'000'000'000)).replicas(),
            (std::vector<int>{7, 1}));
}

TEST(DpPartitioner, AStageMayStraddleServers) {
  const Partition partition =
      partition_of(kHeavyThenWide, servers(4, 4, 1'000'000'000, 1'000'000'000));
  EXPECT_EQ(partition.replicas(), (std::vector<int>{15, 1}));
  EXPECT_EQ(partition.places, (std::vector<cluster::WorkerRange>{{.first = 0, .count = 15},
                                                                 {.first = 15, .count = 1}}));
}

TEST(DpPartitioner, LeavesAGapSoThatAStageStaysInItsServer) {
  // Three replicas fit into a server of four; the layer after them needs one worker. Straddling
  // would cost 2 * 2/3 * 300 / B more.
  const auto profile = chain({300, 100, 300}, {300, 0, 300}, {0, 0, 0});
  const Partition partition =
      partition_of(profile, servers(2, 4, 1'000'000'000, 1'000'000), {.model = "penstock"});
  for (const cluster::WorkerRange& place : partition.places)
    EXPECT_EQ(place.first / 4, (place.end() - 1) / 4);
  EXPECT_LT(partition.num_workers(), 9);
}

TEST(DpPartitioner, DataParallelWhenWeightsAreSmall) {
  const auto profile = chain({500, 700, 300}, {1, 1, 1}, {1'000'000, 1'000'000, 1});
  EXPECT_EQ(partition_of(profile, flat_cluster(4, 1'000'000'000)).replicas(), std::vector<int>{4});
}

TEST(DpPartitioner, UsesNoMoreWorkersThanHelp) {
  const auto profile = chain({0, 0, 0}, {5, 5, 5}, {1, 1, 1});
  const Partition partition = partition_of(profile, flat_cluster(4096, 1'000'000'000));
  EXPECT_EQ(partition.places, (std::vector<cluster::WorkerRange>{{.first = 0, .count = 1}}));
}

TEST(DpPartitioner, UsesTheFirstWorkersOfAPartOfTheCluster) {
  const auto profile = chain({500, 500}, {1, 1}, {1'000'000, 1});
  const Partition partition =
      partition_of(profile, servers(2, 4, 1'000'000'000, 1'000'000'000), {.workers = 3});
  EXPECT_EQ(partition.places, (std::vector<cluster::WorkerRange>{{.first = 0, .count = 3}}));
}

TEST(DpPartitioner, StraightUsesAsManyStagesAsWorkersOrLayers) {
  const auto profile = chain({10, 10, 10, 10}, {1, 1, 1, 1}, {1, 1, 1, 1});
  EXPECT_EQ(partition_of(profile, flat_cluster(3, 1'000'000'000), {.straight = true}).replicas(),
            (std::vector<int>{1, 1, 1}));
  EXPECT_EQ(partition_of(profile, flat_cluster(4000, 1'000'000'000), {.straight = true}).replicas(),
            (std::vector<int>{1, 1, 1, 1}));
}

TEST(DpPartitioner, StraightHandlesMoreStagesThanAWordHasBits) {
  const std::vector<int64_t> ones(150, 1);
  const auto profile = chain(ones, ones, std::vector<int64_t>(150, 0));
  const Partition partition =
      partition_of(profile, flat_cluster(130, 1'000'000'000), {.straight = true});
  EXPECT_EQ(partition.ends.size(), 130u);
  EXPECT_DOUBLE_EQ(partition.bottleneck_ns, 6);
}

TEST(DpPartitioner, StraightPutsSlowLinksBetweenSmallCuts) {
  // Two servers of two: the cut between them can only be after the second stage.
  const auto profile = chain({10, 10, 10, 10, 10}, {0, 0, 0, 0, 0}, {1'000, 1'000, 10, 1'000, 0});
  const Partition partition =
      partition_of(profile, servers(2, 2, 1'000'000'000'000, 1'000'000'000), {.straight = true});
  EXPECT_EQ(partition.ends[1], 3);
  EXPECT_DOUBLE_EQ(partition.bottleneck_ns, 60);
}

TEST(DpPartitioner, RecomputesOnlyWhereMemoryAsksForIt) {
  // Without recomputation the first stage keeps two stashes of 100, which does not fit.
  auto profile = chain({50, 50}, {1, 1}, {10, 0});
  profile.costs[0].stash_bytes = 100;
  const auto cluster = flat_cluster(2, 1'000'000'000'000);
  const Options free{.straight = true};
  EXPECT_EQ(partition_of(profile, cluster, free).recompute, (std::vector<bool>{false, false}));
  const Options limited{.memory_limit_bytes = 180, .recompute = Choice::Auto, .straight = true};
  const Partition partition = partition_of(profile, cluster, limited);
  EXPECT_EQ(partition.recompute, (std::vector<bool>{true, false}));
  EXPECT_DOUBLE_EQ(partition.bottleneck_ns, 200);
  EXPECT_FALSE(find(profile, cluster, {.memory_limit_bytes = 180, .straight = true}).has_value());
}

TEST(DpPartitioner, GivesTheSlowDeviceTheSmallStage) {
  cluster::Cluster cluster = flat_cluster(2, 1'000'000'000'000);
  cluster.groups = {{.first = 0, .count = 1, .device = {.name = "old", .speed = 0.5}}};
  const Partition partition = partition_of(chain({10, 10, 10}, {0, 0, 0}, {0, 0, 0}), cluster);
  EXPECT_EQ(partition.ends, (std::vector<int>{1, 3}));
  EXPECT_DOUBLE_EQ(partition.bottleneck_ns, 60);
}

TEST(DpPartitioner, KeepsWithinTheMemoryOfEachDevice) {
  cluster::Cluster cluster = flat_cluster(2, 1'000'000'000'000);
  cluster.device.memory_bytes = 1'000;
  cluster.groups = {{.first = 0, .count = 1, .device = {.name = "small", .memory_bytes = 100}}};
  const Partition partition = partition_of(chain({10, 10, 10}, {10, 100, 100}, {0, 0, 0}), cluster);
  EXPECT_EQ(partition.ends, (std::vector<int>{1, 3}));
}

TEST(DpPartitioner, UsesAllWorkersWhereThatIsAsked) {
  const auto profile = chain({50, 50}, {1'000, 1'000}, {0, 0});
  const auto cluster = flat_cluster(7, 1'000'000'000);
  EXPECT_EQ(partition_of(profile, cluster, {.model = "released"}).num_workers(), 2);
  EXPECT_EQ(
      partition_of(profile, cluster, {.model = "released", .use_all_workers = true}).num_workers(),
      7);
}

TEST(DpPartitioner, RefusesWhatItCannotPlaceExactly) {
  const std::vector<int64_t> ones(1000, 1);
  const auto profile = chain(ones, ones, ones);
  cluster::Cluster cluster = flat_cluster(4096, 1'000'000'000);
  cluster.groups = {{.first = 7, .count = 1, .device = {.name = "old", .speed = 0.5}}};
  EXPECT_THROW(find(profile, cluster, {}), ConfigError);
  EXPECT_THROW(find(profile, flat_cluster(4, 1), {.workers = 5}), ConfigError);
}

TEST(DpPartitioner, AbsurdSizesGiveAFinitePlan) {
  const int64_t huge = 1'000'000'000'000'000'000;
  const auto profile = chain({huge / 3, 0, huge / 3}, {huge, 0, huge}, {huge / 4, huge / 2, 0});
  for (const std::string& name : cost_model_names()) {
    for (const auto& cluster : {flat_cluster(4096, 1, INT64_MAX), servers(100'000, 100, 1, 1)}) {
      const Partition partition = partition_of(profile, cluster, {.model = name});
      EXPECT_TRUE(std::isfinite(partition.bottleneck_ns)) << name;
      EXPECT_EQ(partition.ends.back(), 3) << name;
    }
  }
}

TEST(DpPartitioner, TheSameInputGivesTheSamePlan) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Rng rng(seed);
    const auto profile = testing_graphs::random_profile(rng, 12, 0.1);
    const auto cluster = testing_graphs::random_cluster(rng, 16);
    EXPECT_EQ(find(profile, cluster, {.model = "penstock"}),
              find(profile, cluster, {.model = "penstock"}));
  }
}

}  // namespace
}  // namespace penstock::planner
