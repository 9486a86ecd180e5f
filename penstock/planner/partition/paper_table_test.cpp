#include "penstock/planner/partition/paper_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/planner/cost/named_models.h"
#include "penstock/planner/partition/dp_partitioner.h"
#include "penstock/planner/testing/testing_graphs.h"

namespace penstock::planner {
namespace {

using testing::ElementsAre;
using testing_graphs::between;
using testing_graphs::flat_cluster;

TEST(PaperTable, ReachesTheOptimumWithAllWorkers) {
  int compared = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    const auto profile =
        testing_graphs::random_profile(rng, static_cast<int>(between(rng, 1, 7)), 0.2);
    const auto layers = testing_graphs::planned_layers(profile);
    const CutStates states(profile.graph, layers);
    const auto workers = static_cast<int>(between(rng, 1, 6));
    const cluster::Cluster cluster = flat_cluster(workers, 500'000'000);
    const auto model = make_cost_model("sosp2019", cluster, GradientSync::Ring);
    const PartitionProblem problem{.states = states,
                                   .model = *model,
                                   .memory = {},
                                   .cluster = cluster,
                                   .workers = workers,
                                   .use_all_workers = true};
    const auto printed = paper_partition(problem);
    const auto best = best_partition(problem);
    ASSERT_EQ(printed.has_value(), best.has_value()) << "seed " << seed;
    if (!best) continue;
    ++compared;
    EXPECT_EQ(best->num_workers(), workers);
    EXPECT_EQ(printed->num_workers(), workers);
    EXPECT_NEAR(printed->bottleneck_ns, best->bottleneck_ns, 1e-9 * best->bottleneck_ns)
        << "seed " << seed;
    EXPECT_LE(best->bottleneck_ns, printed->bottleneck_ns) << "seed " << seed;
  }
  EXPECT_GT(compared, 150);
}

// As VGG-16 on 16 workers: no cut is cheap before the front, and beyond some replicas the front's
// synchronisation costs as much as the cut behind it. Each of the other workers takes one layer.
TEST(PaperTable, GivesAReplicatedFrontAndSingleWorkers) {
  // A byte takes 1 ns. The front of two layers on four workers takes 450 ns, on five its
  // synchronisation takes 464; the cut takes 460.
  const auto profile = testing_graphs::chain({300, 300, 10, 10, 10, 10}, {145, 145, 20, 1, 1, 1},
                                             {10'000, 230, 1, 1, 1, 1});
  const auto layers = testing_graphs::planned_layers(profile);
  const CutStates states(profile.graph, layers);
  const cluster::Cluster cluster = flat_cluster(8, 1'000'000'000);
  const auto model = make_cost_model("sosp2019", cluster, GradientSync::Ring);
  const auto found = best_partition({.states = states,
                                     .model = *model,
                                     .memory = {},
                                     .cluster = cluster,
                                     .workers = 8,
                                     .use_all_workers = true});
  ASSERT_TRUE(found.has_value());
  EXPECT_THAT(found->replicas(), ElementsAre(4, 1, 1, 1, 1));
}

TEST(PaperTable, DoesNotApplyWhereTimesDependOnPlacesOrMemory) {
  const auto profile = testing_graphs::chain({1, 1}, {1, 1}, {1, 1});
  const auto layers = testing_graphs::planned_layers(profile);
  const CutStates states(profile.graph, layers);
  cluster::Cluster cluster = flat_cluster(4, 1'000'000'000);
  cluster.levels.push_back(
      {.name = "outer", .count = 2, .bandwidth_bytes_per_s = 1'000'000, .latency_ns = 0});
  const auto model = make_cost_model("sosp2019", cluster, GradientSync::Ring);
  EXPECT_FALSE(paper_partition(
      {.states = states, .model = *model, .memory = {}, .cluster = cluster, .workers = 8}));
  const cluster::Cluster flat = flat_cluster(4, 1'000'000'000);
  const auto flat_model = make_cost_model("sosp2019", flat, GradientSync::Ring);
  EXPECT_FALSE(paper_partition({.states = states,
                                .model = *flat_model,
                                .memory = {.limit_bytes = 10},
                                .cluster = flat,
                                .workers = 4}));
}

}  // namespace
}  // namespace penstock::planner
