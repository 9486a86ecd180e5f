#include "penstock/planner/partition/bounded_search.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/planner/cost/named_models.h"
#include "penstock/planner/partition/cut_bounds.h"
#include "penstock/planner/testing/testing_graphs.h"
#include "penstock/planner/testing/testing_models.h"
#include "penstock/util/error.h"

namespace penstock::planner {
namespace {

using testing_graphs::between;
using testing_graphs::flat_cluster;
using testing_graphs::planned_layers;

// One problem over any states of one model.
struct Case {
  profile::Profile profile;
  cluster::Cluster cluster;
  std::vector<PlannedLayer> layers = {};
  std::unique_ptr<CostModel> model = {};
  MemoryModel memory = {};
  Choice recompute = Choice::Never;
  bool straight = false;
  bool at_least_two_stages = false;

  Case(profile::Profile profile_in, cluster::Cluster cluster_in,
       const std::string& model_name = "penstock")
      : profile(std::move(profile_in)),
        cluster(std::move(cluster_in)),
        layers(planned_layers(profile)) {
    model = make_cost_model(model_name, cluster, GradientSync::Ring);
    memory.max_workers = cluster.num_workers();
  }

  PartitionProblem over(const CutStates& states) const {
    return {.states = states,
            .model = *model,
            .memory = memory,
            .recompute = recompute,
            .cluster = cluster,
            .workers = cluster.num_workers(),
            .straight = straight,
            .at_least_two_stages = at_least_two_stages};
  }

  BoundedPartition bounded(const SearchLimits& limits) const {
    const CutSpace space(profile.graph, layers, limits);
    return best_partition(space, [this](const CutStates& states) { return over(states); });
  }
};

Case random_case(Rng& rng) {
  const auto layers = static_cast<int>(between(rng, 1, 12));
  profile::Profile profile = testing_graphs::random_profile(rng, layers, 0.1 + 0.2 * rng.uniform());
  const auto bandwidth = between(rng, 1, 3) * 1'000'000'000;
  cluster::Cluster cluster =
      flat_cluster(static_cast<int>(between(rng, 1, 5)), bandwidth, between(rng, 0, 5));
  if (rng.uniform() < 0.4) {
    cluster.levels.push_back({.name = "rack",
                              .count = 2,
                              .bandwidth_bytes_per_s = bandwidth / 2,
                              .latency_ns = between(rng, 0, 9)});
  }
  if (rng.uniform() < 0.2) {
    cluster.levels.push_back({.name = "row",
                              .count = 2,
                              .bandwidth_bytes_per_s = bandwidth / 5,
                              .latency_ns = between(rng, 0, 9)});
  }
  if (rng.uniform() < 0.3)
    cluster.groups.push_back(
        {.first = 0, .count = 1, .device = {.name = "other", .speed = 0.5 + rng.uniform()}});
  Case result(std::move(profile), std::move(cluster),
              cost_model_names()[rng.below(cost_model_names().size())]);
  result.straight = rng.uniform() < 0.25;
  result.at_least_two_stages = rng.uniform() < 0.25;
  if (rng.uniform() < 0.3) result.memory.micro_batches = between(rng, 1, 8);
  if (rng.uniform() < 0.4) result.memory.limit_bytes = between(rng, 50, 1'500);
  if (rng.uniform() < 0.3) result.recompute = rng.uniform() < 0.5 ? Choice::Auto : Choice::Always;
  return result;
}

// From so tight that hardly anything is looked at to enough for a proof.
SearchLimits random_limits(Rng& rng) {
  return {.all_states = between(rng, 0, 3),
          .selected_states = between(rng, 4, 20),
          .exact_states = rng.uniform() < 0.5 ? between(rng, 4, 12) : between(rng, 20, 400),
          .steps = rng.uniform() < 0.3 ? between(rng, 10, 300) : 100'000,
          .lattice_nodes = rng.uniform() < 0.2 ? 10 : 100'000,
          .rounds = static_cast<int>(between(rng, 0, 3))};
}

TEST(BoundedSearch, IsNeverBetterThanTheOptimumAndItsBoundNeverAbove) {
  int proven = 0;
  int unproven = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    Rng rng(seed);
    const Case problem = random_case(rng);
    const CutStates all(problem.profile.graph, problem.layers);
    const auto optimum = best_partition(problem.over(all));
    const BoundedPartition found = problem.bounded(random_limits(rng));
    ASSERT_TRUE(found.states);
    if (!optimum) {
      EXPECT_FALSE(found.partition) << "seed " << seed;
      continue;
    }
    EXPECT_LE(found.lower_bound_ns, optimum->bottleneck_ns) << "seed " << seed;
    if (found.partition) {
      EXPECT_GE(found.partition->bottleneck_ns, optimum->bottleneck_ns) << "seed " << seed;
      EXPECT_GE(found.gap(), 0) << "seed " << seed;
      EXPECT_LE(found.partition->bottleneck_ns * (1 - found.gap()),
                optimum->bottleneck_ns * (1 + 1e-12))
          << "seed " << seed;
      const bool claims_optimum = found.gap() == 0;
      EXPECT_TRUE(!claims_optimum || found.partition->bottleneck_ns == optimum->bottleneck_ns)
          << "seed " << seed;
    }
    if (found.proven) {
      ASSERT_TRUE(found.partition) << "a partition exists, seed " << seed;
      EXPECT_EQ(found.partition->bottleneck_ns, optimum->bottleneck_ns) << "seed " << seed;
    }
    (found.proven ? proven : unproven) += 1;
  }
  // The limits must leave something to prove on both sides, or this tests nothing.
  EXPECT_GT(proven, 120);
  EXPECT_GT(unproven, 40);
}

TEST(BoundedSearch, FindsTheSameOptimumWhereItCanListTheUsableCuts) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Rng rng(seed);
    const Case problem = random_case(rng);
    const CutStates all(problem.profile.graph, problem.layers);
    const auto optimum = best_partition(problem.over(all));
    const BoundedPartition found = problem.bounded({.all_states = 0, .exact_states = 100'000});
    if (!optimum || !found.partition) {
      EXPECT_FALSE(optimum && found.proven) << "seed " << seed;
      continue;
    }
    ASSERT_TRUE(found.proven) << "seed " << seed;
    EXPECT_EQ(found.partition->bottleneck_ns, optimum->bottleneck_ns) << "seed " << seed;
    EXPECT_EQ(found.gap(), 0);
  }
}

TEST(BoundedSearch, LooksAtAllCutsWhereTheyAreFew) {
  Rng rng(5);
  const Case problem(testing_graphs::random_profile(rng, 10, 0.2), flat_cluster(3, 1'000'000'000));
  const CutStates all(problem.profile.graph, problem.layers);
  const BoundedPartition found = problem.bounded({});
  EXPECT_EQ(found.states->size(), all.size());
  EXPECT_EQ(found.partition, best_partition(problem.over(all)));
  EXPECT_TRUE(found.proven);
}

TEST(BoundedSearch, SaysNoOnlyWhenThatIsProven) {
  int proven = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Rng rng(seed);
    Case problem = random_case(rng);
    problem.memory.limit_bytes = between(rng, 20, 400);
    const CutStates all(problem.profile.graph, problem.layers);
    const bool possible = best_partition(problem.over(all)).has_value();
    const BoundedPartition found = problem.bounded(random_limits(rng));
    if (found.partition || !found.proven) continue;
    ++proven;
    EXPECT_FALSE(possible) << "seed " << seed;
  }
  EXPECT_GT(proven, 20);
}

TEST(BoundedSearch, IsDeterministic) {
  Rng rng(3);
  const Case problem(testing_models::branched(rng, 60, 5, 0.1), flat_cluster(4, 12'000'000'000));
  const BoundedPartition first = problem.bounded({.selected_states = 300, .exact_states = 300});
  const BoundedPartition second = problem.bounded({.selected_states = 300, .exact_states = 300});
  EXPECT_EQ(first.partition, second.partition);
  EXPECT_EQ(first.lower_bound_ns, second.lower_bound_ns);
}

TEST(BoundedSearch, ProvesInceptionV3) {
  cluster::Cluster servers = flat_cluster(4, 12'000'000'000, 5'000);
  servers.levels.push_back(
      {.name = "rack", .count = 4, .bandwidth_bytes_per_s = 1'250'000'000, .latency_ns = 20'000});
  for (const cluster::Cluster& cluster : {flat_cluster(4, 12'000'000'000, 20'000),
                                          flat_cluster(16, 1'250'000'000, 20'000), servers}) {
    const Case problem(testing_models::inception_v3(64, true), cluster);
    const BoundedPartition found = problem.bounded({});
    ASSERT_TRUE(found.partition);
    EXPECT_TRUE(found.proven);
    EXPECT_EQ(found.gap(), 0);
  }
}

TEST(BoundedSearch, ProvesDataParallelismWhereEveryCutIsDear) {
  Rng rng(4);
  profile::Profile profile = testing_models::branched(rng, 200, 10, 0.05);
  for (profile::LayerCost& cost : profile.costs) cost.output_bytes[0] *= 1'000;
  const Case problem(std::move(profile), flat_cluster(4, 1'250'000'000, 20'000));
  const BoundedPartition found = problem.bounded({});
  ASSERT_TRUE(found.partition);
  EXPECT_EQ(found.partition->ends.size(), 1);
  EXPECT_TRUE(found.proven);
  EXPECT_EQ(found.gap(), 0);
}

TEST(BoundedSearch, RefusesAGraphWithoutLayers) {
  const graph::ModelGraph empty;
  EXPECT_THROW(CutSpace(empty, {}), ConfigError);
}

// A layer per entry, read by the layer `distance` after it.
profile::Profile strided(int layers, int distance) {
  std::vector<graph::LayerNode> nodes;
  profile::Profile profile;
  for (int l = 0; l < layers; ++l) {
    const graph::ValueRef input =
        l < distance ? graph::ValueRef::model_input(0) : graph::ValueRef{LayerId{l - distance}, 0};
    nodes.push_back(
        {.name = fmt::format("l{}", l), .kind = "k", .inputs = {input}, .num_outputs = 1});
    profile.costs.push_back({.forward_ns = 1'000 + l % 7,
                             .backward_ns = 2'000,
                             .output_bytes = {1'000 + l % 5},
                             .weight_bytes = 10});
  }
  profile.graph = graph::ModelGraph::build(1, std::move(nodes), {{LayerId{layers - 1}, 0}});
  return profile;
}

TEST(BoundedSearch, PlansDisconnectedGraphs) {
  const Case problem(strided(120, 3), flat_cluster(4, 12'000'000'000));
  const BoundedPartition found = problem.bounded({.all_states = 100, .exact_states = 500});
  ASSERT_TRUE(found.partition);
  EXPECT_LT(found.gap(), 0.05);
}

TEST(BoundedSearch, PlansAHundredThousandLayersInAChainOrSideBySide) {
  for (const int distance : {1, 100'000}) {
    const Case problem(strided(100'000, distance), flat_cluster(16, 12'000'000'000));
    const BoundedPartition found =
        problem.bounded({.selected_states = 1'000, .exact_states = 1'000, .rounds = 1});
    ASSERT_TRUE(found.partition) << distance;
    EXPECT_LT(found.gap(), 0.05) << distance;
  }
}

}  // namespace
}  // namespace penstock::planner
