// The partitioner against brute force, which tries every placement.
#include <gtest/gtest.h>

#include "penstock/planner/cost/named_models.h"
#include "penstock/planner/partition/dp_partitioner.h"
#include "penstock/planner/testing/testing_brute_force.h"
#include "penstock/planner/testing/testing_graphs.h"

namespace penstock::planner {
namespace {

using testing_graphs::between;

struct Shape {
  bool limited_memory = false;
  bool unequal_devices = false;
  bool all_workers = false;
  bool straight = false;
  int most_workers = 8;
  int most_layers = 5;
};

struct PlaceCase {
  profile::Profile profile;
  cluster::Cluster cluster;
  std::unique_ptr<CostModel> model;
  MemoryModel memory;
  Choice recompute = Choice::Never;
  int workers = 1;
  bool straight = false;
  bool at_least_two_stages = false;
  bool use_all_workers = false;
};

cluster::Device random_device(Rng& rng, bool limited_memory) {
  const double speeds[] = {0.3, 0.5, 1.0, 1.0, 2.0};
  return {.name = "d",
          .memory_bytes = limited_memory && rng.below(4) > 0 ? between(rng, 100, 900) : 0,
          .speed = speeds[rng.below(5)]};
}

PlaceCase random_places(uint64_t seed, const Shape& shape) {
  Rng rng(seed);
  PlaceCase result;
  result.profile = testing_graphs::random_profile(
      rng, static_cast<int>(between(rng, 1, shape.most_layers)), 0.25);
  result.cluster = testing_graphs::random_cluster(rng, shape.most_workers);
  const int all = result.cluster.num_workers();
  result.workers = rng.below(3) == 0 ? static_cast<int>(between(rng, 1, all)) : all;
  result.cluster.device = random_device(rng, shape.limited_memory);
  if (shape.unequal_devices) {
    for (int first = 0; first < all; ++first) {
      if (rng.below(3) == 0)
        result.cluster.groups.push_back(
            {.first = first, .count = 1, .device = random_device(rng, shape.limited_memory)});
    }
  }
  const GradientSync syncs[] = {GradientSync::Ring, GradientSync::Ring,
                                GradientSync::ParameterServer, GradientSync::Summation,
                                GradientSync::Hierarchical};
  testing_graphs::add_machines(rng, result.cluster);
  if (rng.below(3) == 0)
    result.cluster.cpu_machines = {.count = 2, .bandwidth_bytes_per_s = 1'000'000'000};
  result.model =
      make_cost_model(cost_model_names()[rng.below(4)], result.cluster, syncs[rng.below(5)]);
  result.straight = shape.straight;
  result.at_least_two_stages = rng.below(4) == 0;
  result.use_all_workers = shape.all_workers;
  const plan::Strategy kinds[] = {plan::Strategy::OneFOneB, plan::Strategy::OneFOneB,
                                  plan::Strategy::OneFOneBFlush, plan::Strategy::GPipe};
  const plan::Strategy kind = kinds[rng.below(4)];
  const Choice recomputes[] = {Choice::Never, Choice::Always, Choice::Auto, Choice::Auto};
  result.recompute = recomputes[rng.below(4)];
  result.memory = {
      .strategy = kind,
      .policy = plan::default_policy(kind),
      .limit_bytes = shape.limited_memory && rng.below(3) > 0 ? between(rng, 50, 900) : 0,
      .micro_batches = rng.below(2) == 0 ? 0 : between(rng, 1, 12),
      .max_workers = result.workers};
  return result;
}

PartitionProblem problem_of(const PlaceCase& c, const CutStates& states) {
  return {.states = states,
          .model = *c.model,
          .memory = c.memory,
          .recompute = c.recompute,
          .cluster = c.cluster,
          .workers = c.workers,
          .straight = c.straight,
          .at_least_two_stages = c.at_least_two_stages,
          .use_all_workers = c.use_all_workers};
}

int64_t bytes_over_cuts(const CutStates& states, const Partition& partition) {
  int64_t bytes = 0;
  for (const int end : partition.ends) bytes += states.cut_bytes(end);
  return bytes;
}

// The places are what they are said to be: ascending, disjoint, on the workers that may be used.
void expect_placed(const Partition& partition, int workers) {
  int free = 0;
  for (const cluster::WorkerRange& place : partition.places) {
    EXPECT_GE(place.first, free);
    EXPECT_GE(place.count, 1);
    free = place.end();
  }
  EXPECT_LE(free, workers);
}

/// Returns how many of the cases have a plan.
int expect_optimal(uint64_t first_seed, int cases, const Shape& shape) {
  int feasible = 0;
  for (uint64_t seed = first_seed;
       seed < first_seed + static_cast<uint64_t>(cases) && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const PlaceCase c = random_places(seed, shape);
    const std::vector<PlannedLayer> layers = testing_graphs::planned_layers(c.profile);
    const CutStates states(c.profile.graph, layers);
    const auto found = best_partition(problem_of(c, states));
    const auto expected = brute_force(c.profile.graph, layers, problem_of(c, states));
    EXPECT_EQ(found.has_value(), expected.has_value());
    if (!found || !expected) continue;
    ++feasible;
    expect_placed(*found, c.workers);
    EXPECT_DOUBLE_EQ(found->bottleneck_ns, expected->bottleneck_ns) << c.model->name();
    EXPECT_EQ(found->num_workers(), expected->workers);
    if (shape.all_workers) continue;
    EXPECT_EQ(static_cast<int>(found->ends.size()), expected->stages);
    if (!shape.straight) {
      EXPECT_EQ(bytes_over_cuts(states, *found), expected->cut_bytes);
    }
  }
  return feasible;
}

TEST(Placement, EqualsBruteForce) { EXPECT_GT(expect_optimal(0, 2000, {}), 1900); }

TEST(Placement, EqualsBruteForceOnMoreWorkers) {
  expect_optimal(10'000, 300, {.most_workers = 24, .most_layers = 3});
}

TEST(Placement, EqualsBruteForceUnderMemoryLimits) {
  const int feasible = expect_optimal(20'000, 2000, {.limited_memory = true});
  EXPECT_GT(feasible, 500);
  EXPECT_LT(feasible, 1950);
}

TEST(Placement, EqualsBruteForceOnUnequalDevices) {
  expect_optimal(30'000, 700, {.unequal_devices = true, .most_workers = 6});
  expect_optimal(40'000, 700, {.limited_memory = true, .unequal_devices = true, .most_workers = 6});
}

TEST(Placement, EqualsBruteForceWithAllWorkersUsed) {
  expect_optimal(50'000, 500, {.all_workers = true});
  expect_optimal(
      60'000, 300,
      {.limited_memory = true, .unequal_devices = true, .all_workers = true, .most_workers = 6});
}

TEST(Placement, EqualsBruteForceForStraightPipelines) {
  expect_optimal(70'000, 500, {.straight = true});
  expect_optimal(80'000, 500, {.limited_memory = true, .straight = true});
  expect_optimal(90'000, 500, {.limited_memory = true, .unequal_devices = true, .straight = true});
}

TEST(Placement, LeastMemoryIsTheThreshold) {
  for (const bool unequal : {false, true}) {
    for (uint64_t seed = 0; seed < 150; ++seed) {
      PlaceCase c = random_places(seed, {.limited_memory = true,
                                         .unequal_devices = unequal,
                                         .straight = seed % 3 == 0,
                                         .most_workers = 6});
      const std::vector<PlannedLayer> layers = testing_graphs::planned_layers(c.profile);
      const CutStates states(c.profile.graph, layers);
      const auto least = least_memory(problem_of(c, states));
      ASSERT_TRUE(least.has_value());
      c.memory.limit_bytes = least->bytes;
      EXPECT_TRUE(brute_force(c.profile.graph, layers, problem_of(c, states)).has_value())
          << "seed " << seed;
      if (least->bytes <= 1) continue;
      c.memory.limit_bytes = least->bytes - 1;
      EXPECT_FALSE(brute_force(c.profile.graph, layers, problem_of(c, states)).has_value())
          << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace penstock::planner
