#include "penstock/planner/dp_partitioner.h"

#include <gtest/gtest.h>

#include "penstock/planner/brute_force.h"
#include "penstock/planner/testing_graphs.h"

namespace penstock::planner {
namespace {

using testing_graphs::between;
using testing_graphs::flat_cluster;

struct Case {
  profile::Profile profile;
  std::unique_ptr<CostModel> model;
  MemoryModel memory;
  int workers = 1;
  bool straight = false;
  bool at_least_two_stages = false;
};

Case random_case(uint64_t seed, bool limit_memory) {
  Rng rng(seed);
  Case result;
  result.profile = testing_graphs::random_profile(rng, static_cast<int>(between(rng, 1, 6)), 0.25);
  result.workers = static_cast<int>(between(rng, 1, 5));
  const int64_t bandwidths[] = {50'000'000, 500'000'000, 1'000'000'000, 10'000'000'000};
  result.model = make_cost_model(rng.below(3) == 0 ? "sosp2019" : "penstock",
                                 flat_cluster(result.workers, bandwidths[rng.below(4)], between(rng, 0, 3), rng.below(4) == 0));
  result.straight = rng.below(4) == 0;
  result.at_least_two_stages = rng.below(4) == 0;
  const schedule::Kind kinds[] = {schedule::Kind::OneFOneB, schedule::Kind::OneFOneB, schedule::Kind::OneFOneBFlush, schedule::Kind::GPipe};
  const schedule::Kind kind = kinds[rng.below(4)];
  result.memory = {.kind = kind,
                   .policy = schedule::default_policy(kind),
                   .limit_bytes = limit_memory ? between(rng, 1, 700) : 0,
                   .micro_batches = rng.below(2) == 0 ? 0 : between(rng, 1, 12),
                   .max_workers = result.workers};
  return result;
}

PartitionProblem problem_of(const Case& c, const CutStates& states) {
  return {.states = states,
          .model = *c.model,
          .memory = c.memory,
          .workers = c.workers,
          .straight = c.straight,
          .at_least_two_stages = c.at_least_two_stages};
}

std::optional<BruteForceResult> oracle(const Case& c) {
  return brute_force(c.profile.graph, testing_graphs::planned_layers(c.profile), *c.model, c.memory, c.workers, c.straight,
                     c.at_least_two_stages);
}

void expect_optimal(uint64_t seed, bool limit_memory, int& feasible) {
  const Case c = random_case(seed, limit_memory);
  const CutStates states(c.profile.graph, testing_graphs::planned_layers(c.profile));
  const auto found = best_partition(problem_of(c, states));
  const auto expected = oracle(c);
  ASSERT_EQ(found.has_value(), expected.has_value()) << "seed " << seed;
  if (!found) return;
  ++feasible;
  ASSERT_DOUBLE_EQ(found->bottleneck_ns, expected->bottleneck_ns) << "seed " << seed;
  ASSERT_EQ(found->num_workers(), expected->workers) << "seed " << seed;
  ASSERT_EQ(static_cast<int>(found->ends.size()), expected->stages) << "seed " << seed;
}

TEST(DpPartitioner, EqualsBruteForce) {
  int feasible = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) expect_optimal(seed, false, feasible);
  EXPECT_EQ(feasible, 500);
}

TEST(DpPartitioner, EqualsBruteForceUnderMemoryLimits) {
  int feasible = 0;
  for (uint64_t seed = 1000; seed < 1600; ++seed) expect_optimal(seed, true, feasible);
  EXPECT_GT(feasible, 100);
  EXPECT_LT(feasible, 500);
}

TEST(DpPartitioner, LeastMemoryIsTheThreshold) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Case c = random_case(seed, true);
    const CutStates states(c.profile.graph, testing_graphs::planned_layers(c.profile));
    const auto least = least_memory(problem_of(c, states));
    ASSERT_TRUE(least.has_value());
    c.memory.limit_bytes = least->bytes;
    EXPECT_TRUE(oracle(c).has_value()) << "seed " << seed;
    if (least->bytes <= 1) continue;
    c.memory.limit_bytes = least->bytes - 1;
    EXPECT_FALSE(oracle(c).has_value()) << "seed " << seed;
  }
}

Partition partition_of(const profile::Profile& profile, const cluster::Cluster& cluster, int workers, bool straight = false) {
  const auto model = make_cost_model("sosp2019", cluster);
  const CutStates states(profile.graph, testing_graphs::planned_layers(profile));
  return best_partition({.states = states, .model = *model, .memory = {}, .workers = workers, .straight = straight}).value();
}

TEST(DpPartitioner, ReplicatesTheHeavyLayersAndIsolatesTheWeights) {
  // The shape of VGG-16: much computation on few weights, then little on many.
  const auto profile = testing_graphs::chain({500, 500, 30}, {1, 1, 1'000'000}, {100, 100, 1});
  EXPECT_EQ(partition_of(profile, flat_cluster(8, 1'000'000'000), 8).replicas, (std::vector<int>{7, 1}));
}

TEST(DpPartitioner, DataParallelWhenWeightsAreSmall) {
  const auto profile = testing_graphs::chain({500, 700, 300}, {1, 1, 1}, {1'000'000, 1'000'000, 1});
  EXPECT_EQ(partition_of(profile, flat_cluster(4, 1'000'000'000), 4).replicas, std::vector<int>{4});
}

TEST(DpPartitioner, UsesNoMoreWorkersThanHelp) {
  const auto profile = testing_graphs::chain({0, 0, 0}, {5, 5, 5}, {1, 1, 1});
  EXPECT_EQ(partition_of(profile, flat_cluster(4096, 1'000'000'000), 4096).replicas, std::vector<int>{1});
}

TEST(DpPartitioner, StraightUsesAsManyStagesAsWorkersOrLayers) {
  const auto profile = testing_graphs::chain({10, 10, 10, 10}, {1, 1, 1, 1}, {1, 1, 1, 1});
  EXPECT_EQ(partition_of(profile, flat_cluster(3, 1'000'000'000), 3, true).replicas, (std::vector<int>{1, 1, 1}));
  EXPECT_EQ(partition_of(profile, flat_cluster(4000, 1'000'000'000), 4000, true).replicas, (std::vector<int>{1, 1, 1, 1}));
}

TEST(DpPartitioner, StraightHandlesMoreStagesThanAWordHasBits) {
  std::vector<int64_t> ones(150, 1);
  const auto profile = testing_graphs::chain(ones, ones, std::vector<int64_t>(150, 0));
  const Partition partition = partition_of(profile, flat_cluster(130, 1'000'000'000), 130, true);
  EXPECT_EQ(partition.ends.size(), 130u);
  EXPECT_DOUBLE_EQ(partition.bottleneck_ns, 6);
}

}  // namespace
}  // namespace penstock::planner
