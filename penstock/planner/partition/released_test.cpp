// The cost model "released" with all workers used against PipeDream's released optimiser.
#include <gtest/gtest.h>

#include "penstock/planner/cost/named_models.h"
#include "penstock/planner/partition/dp_partitioner.h"
#include "penstock/planner/testing/testing_graphs.h"
#include "penstock/planner/testing/testing_released_oracle.h"

namespace penstock::planner {
namespace {

using testing_graphs::between;
using testing_graphs::ReleasedOptimizer;

double ours_ns(const CutStates& states, int workers, int64_t bandwidth) {
  const cluster::Cluster cluster = testing_graphs::flat_cluster(workers, bandwidth);
  const auto model = make_cost_model("released", cluster, GradientSync::Ring);
  return best_partition({.states = states,
                         .model = *model,
                         .memory = {},
                         .cluster = cluster,
                         .workers = workers,
                         .use_all_workers = true})
      ->bottleneck_ns;
}

TEST(Released, IsTheReleasedOptimizersBottleneckOnFlatClusters) {
  int compared = 0;
  int equal_states = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    Rng rng(seed);
    const auto profile =
        testing_graphs::random_profile(rng, static_cast<int>(between(rng, 1, 9)), 0.15);
    const std::vector<PlannedLayer> layers = testing_graphs::planned_layers(profile);
    const CutStates states(profile.graph, layers);
    const ReleasedOptimizer theirs(profile.graph, layers);
    const auto workers = static_cast<int>(between(rng, 1, 8));
    const int64_t bandwidth = between(rng, 1, 40) * 100'000'000;
    const auto expected = theirs.bottleneck_ns(workers, static_cast<double>(bandwidth));
    if (!expected) continue;
    ++compared;
    const double found = ours_ns(states, workers, bandwidth);
    EXPECT_LE(found, *expected * (1 + 1e-12)) << "seed " << seed;
    // Its search over antichains may miss cuts; where it knows them all, the optimum is the same.
    if (theirs.num_states() + 1 != states.size()) continue;
    ++equal_states;
    EXPECT_NEAR(found, *expected, 1e-9 * *expected) << "seed " << seed;
  }
  EXPECT_GT(compared, 300);
  EXPECT_GT(equal_states, 150);
}

TEST(Released, ChainsAreTheSameUpToManyWorkers) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Rng rng(seed);
    std::vector<int64_t> times;
    std::vector<int64_t> weights;
    for (int64_t l = between(rng, 2, 15); l > 0; --l) {
      times.push_back(between(rng, 0, 1'000'000));
      weights.push_back(rng.below(3) == 0 ? between(rng, 0, 100'000'000)
                                          : between(rng, 0, 100'000));
    }
    const auto profile =
        testing_graphs::chain(times, weights, std::vector<int64_t>(times.size(), 1));
    const std::vector<PlannedLayer> layers = testing_graphs::planned_layers(profile);
    const ReleasedOptimizer theirs(profile.graph, layers);
    const auto workers = static_cast<int>(between(rng, 1, 32));
    const double found = ours_ns(CutStates(profile.graph, layers), workers, 1'250'000'000);
    EXPECT_NEAR(found, theirs.bottleneck_ns(workers, 1.25e9).value(), 1e-9 * found)
        << "seed " << seed;
  }
}

}  // namespace
}  // namespace penstock::planner
