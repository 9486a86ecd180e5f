#include "penstock/planner/pricing/buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/plan/sum_wait.h"
#include "penstock/planner/planner.h"
#include "penstock/planner/testing/testing_graphs.h"
#include "penstock/simulate/simulate_plan.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::planner {
namespace {

using plan::sum_processor_ns;
using plan::sum_wait_ns;
using plan::SumsAreTaken;
using testing_graphs::between;
using testing_graphs::flat_cluster;

/// A chain of layers of random times and weights, some of them too small for a bucket.
profile::Profile random_chain(Rng& rng) {
  const auto layers = static_cast<size_t>(between(rng, 1, 8));
  std::vector<int64_t> compute_ns;
  std::vector<int64_t> weight_bytes;
  for (size_t l = 0; l < layers; ++l) {
    compute_ns.push_back(between(rng, 0, 1'000'000));
    weight_bytes.push_back(rng.below(4) == 0 ? 0 : between(rng, 1, 800'000));
  }
  profile::Profile profile =
      testing_graphs::chain(compute_ns, weight_bytes, std::vector<int64_t>(layers, 1000));
  for (profile::LayerCost& cost : profile.costs) cost.step_ns = between(rng, 0, 50'000);
  return profile;
}

plan::Plan data_parallel(const profile::Profile& profile, const cluster::Cluster& cluster,
                         int replicas, const PlanOptions& options) {
  std::vector<std::string> layers;
  for (const auto& layer : profile.graph.layers()) layers.push_back(layer.name);
  return price_plan(profile, cluster, {layers}, {replicas}, options);
}

int64_t simulated_ns(const plan::Plan& plan, int64_t steps) {
  return simulate::simulate_plan(plan, steps, {}).makespan_ns;
}

TEST(SumWaitProperty, DataParallelStepsTakeExactlyTheFormulasTime) {
  int hidden = 0;
  int exposed = 0;
  int charged = 0;
  for (uint64_t seed = 0; seed < 1200; ++seed) {
    Rng rng(seed);
    const profile::Profile profile = random_chain(rng);
    const auto replicas = static_cast<int>(between(rng, 2, 6));
    cluster::Cluster cluster =
        flat_cluster(replicas, between(rng, 1, 40) * 50'000'000, between(rng, 0, 100'000));
    if (rng.below(2) == 0)
      cluster.cpu_machines = {.count = static_cast<int>(between(rng, 1, 8)),
                              .bandwidth_bytes_per_s = between(rng, 1, 40) * 50'000'000};
    if (replicas % 2 == 0 && rng.below(2) == 0) {
      cluster.levels[0].count = replicas / 2;
      cluster.levels.push_back({.name = "rack",
                                .count = 2,
                                .bandwidth_bytes_per_s = between(rng, 1, 40) * 50'000'000,
                                .latency_ns = between(rng, 0, 100'000)});
      testing_graphs::add_machines(rng, cluster);
    }
    testing_graphs::add_processor_times(rng, cluster);
    for (cluster::Level& level : cluster.levels)
      level.processor_ns_per_message = static_cast<int64_t>(seed % 3) * 20'000;
    PlanOptions options;
    options.strategy = plan::Strategy::DataParallel;
    const std::vector<plan::GradientSync> syncs{
        plan::GradientSync::Ordered, plan::GradientSync::Ring, plan::GradientSync::ParameterServer,
        plan::GradientSync::Summation, plan::GradientSync::Hierarchical};
    options.sync = syncs[rng.below(syncs.size())];
    options.gradient_precision = plan::kSyncPrecisions[rng.below(3)];
    options.micro_batches = between(rng, 1, 3) * replicas;
    const plan::Plan plan = data_parallel(profile, cluster, replicas, options);
    const plan::Stage& stage = plan.stages.front();
    const int64_t step_ns = simulated_ns(plan, 6) - simulated_ns(plan, 5);
    const int64_t wait_ns = sum_wait_ns(stage, SumsAreTaken::ByLayers);
    const int64_t processor_ns = sum_processor_ns(stage);
    const int64_t work_ns =
        ceil_div(plan.micro_batches, replicas) * stage.compute_ns() + stage.step_ns;
    ASSERT_EQ(step_ns, work_ns + wait_ns + processor_ns)
        << "seed " << seed << ' ' << to_string(plan.sync);
    // The search's bound is below, and above max(computation, communication).
    const Context context(profile, cluster, options);
    const double least_ns = context.model->least_sum_ns(
        {.weight_bytes = stage.weight_bytes, .overlap_ns = stage.compute_ns() + stage.step_ns},
        replicas, context.topology().level_of({0, replicas}));
    ASSERT_LE(least_ns, static_cast<double>(wait_ns + processor_ns) + 1) << "seed " << seed;
    ASSERT_LE(wait_ns, std::max<int64_t>(stage.sync_ns, 0)) << "seed " << seed;
    if (stage.sync_ns > 0) (wait_ns < stage.sync_ns ? hidden : exposed) += 1;
    charged += processor_ns > 0 ? 1 : 0;
  }
  EXPECT_GT(hidden, 100);
  EXPECT_GT(exposed, 50);
  EXPECT_GT(charged, 100);
}

TEST(SumWaitProperty, ANormLetsTheBackwardPassHideSumsAlone) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Rng rng(seed);
    const profile::Profile profile = random_chain(rng);
    PlanOptions options;
    options.strategy = plan::Strategy::DataParallel;
    options.micro_batches = 2;
    cluster::Cluster cluster = flat_cluster(2, 500'000'000);
    testing_graphs::add_processor_times(rng, cluster);
    const plan::Plan plan = data_parallel(profile, cluster, 2, options);
    const plan::Stage& stage = plan.stages.front();
    const auto steps = [&](int64_t count) {
      schedule::ScheduleShape shape{
          .replicas = {2}, .micro_batches = 2 * count, .accumulate = 2, .global_norm = true};
      return simulate::PlannedSchedule(plan.strategy, shape, {})
          .simulate(simulate::costs_of(plan), {})
          .makespan_ns;
    };
    ASSERT_EQ(steps(5) - steps(4), stage.compute_ns() + stage.step_ns +
                                       sum_wait_ns(stage, SumsAreTaken::InSync) +
                                       sum_processor_ns(stage))
        << "seed " << seed;
  }
}

TEST(Buckets, AreThoseOfTheRuntimeAndShareTheSum) {
  // 100 kB and 200 kB make one bucket, 1 MB the next, and the rest a small one.
  const profile::Profile profile = testing_graphs::chain(
      {10, 20, 30, 40, 50}, {100'000, 0, 200'000, 1'000'000, 4}, {1, 1, 1, 1, 1});
  const plan::Plan plan = data_parallel(profile, flat_cluster(2, 1'000'000'000, 7), 2, {});
  const plan::Stage& stage = plan.stages.front();
  ASSERT_EQ(stage.buckets.size(), 3U);
  EXPECT_EQ(stage.buckets[0].weight_bytes, 300'000);
  EXPECT_EQ(stage.buckets[0].forward_ns, 0);
  EXPECT_EQ(stage.buckets[0].backward_ns, stage.backward_ns);
  EXPECT_EQ(stage.buckets[1].forward_ns, 10 + 20 + 30);
  EXPECT_EQ(stage.buckets[1].backward_ns, 2 * (40 + 50));
  EXPECT_EQ(stage.buckets[2].weight_bytes, 4);
  int64_t wire_ns = 0;
  for (const plan::GradientBucket& bucket : stage.buckets) wire_ns += bucket.wire_ns;
  EXPECT_EQ(wire_ns + stage.sync_latency_ns, stage.sync_ns);
}

TEST(Buckets, AreNotThereWhereWorkersWaitForSums) {
  const profile::Profile profile =
      testing_graphs::chain({1000, 2000}, {1'000'000, 2'000'000}, {1, 1});
  cluster::Cluster cluster = flat_cluster(2, 1'000'000'000, 7);
  const plan::Plan hidden = data_parallel(profile, cluster, 2, {});
  cluster.levels.front().sums_wait = true;
  const plan::Plan waiting = data_parallel(profile, cluster, 2, {});
  const plan::Stage& stage = waiting.stages.front();
  EXPECT_EQ(hidden.stages.front().buckets.size(), 2U);
  EXPECT_THAT(stage.buckets, ::testing::IsEmpty());
  EXPECT_EQ(stage.sync_ns, hidden.stages.front().sync_ns);
  const auto steps = [&](int64_t count) {
    const schedule::ScheduleShape shape{
        .replicas = {2}, .micro_batches = 2 * count, .accumulate = 2};
    return simulate::PlannedSchedule(waiting.strategy, shape, {})
        .simulate(simulate::costs_of(waiting), {})
        .makespan_ns;
  };
  EXPECT_EQ(steps(5) - steps(4), stage.compute_ns() + stage.sync_ns + stage.step_ns);
}

TEST(Buckets, HaveHalfOfTheBytesOnTheWireIn16Bits) {
  const profile::Profile profile = testing_graphs::chain({10, 20}, {1'000'000, 2'000'000}, {1, 1});
  PlanOptions options;
  const cluster::Cluster cluster = flat_cluster(2, 1'000'000'000, 7);
  const plan::Stage wide = data_parallel(profile, cluster, 2, options).stages.front();
  options.gradient_precision = FloatType::BFloat16;
  const plan::Plan plan = data_parallel(profile, cluster, 2, options);
  EXPECT_EQ(plan.gradient_precision, FloatType::BFloat16);
  const plan::Stage& half = plan.stages.front();
  ASSERT_EQ(half.buckets.size(), wide.buckets.size());
  for (size_t b = 0; b < wide.buckets.size(); ++b) {
    EXPECT_EQ(half.buckets[b].weight_bytes, wide.buckets[b].weight_bytes);
    EXPECT_EQ(2 * half.buckets[b].wire_ns, wide.buckets[b].wire_ns);
  }
  EXPECT_EQ(half.memory_bytes, wide.memory_bytes);
}

/// The processor time of two layers' sums, 3 MB together, for the options given.
int64_t processor_ns(const cluster::Cluster& cluster, int replicas, const PlanOptions& options) {
  const profile::Profile profile = testing_graphs::chain({10, 20}, {1'000'000, 2'000'000}, {1, 1});
  return sum_processor_ns(data_parallel(profile, cluster, replicas, options).stages.front());
}

TEST(Buckets, TakeProcessorTimeForWhatAReplicaSends) {
  cluster::Cluster cluster = flat_cluster(4, 1'000'000'000, 7);
  cluster.levels[0].processor_ns_per_gb = 2'000'000'000;   // 2 ns per byte
  EXPECT_EQ(processor_ns(cluster, 2, {}), 2 * 3'000'000);  // 2 (n-1)/n M
  EXPECT_EQ(processor_ns(cluster, 4, {}), 2 * 3'000'000 * 3 / 2);
  EXPECT_EQ(processor_ns(cluster, 4, {.sync = plan::GradientSync::Ring}), 2 * 3'000'000 * 3 / 2);
  EXPECT_EQ(processor_ns(cluster, 4, {.gradient_precision = FloatType::BFloat16}),
            3'000'000 * 3 / 2);
  cluster.cpu_machines = {.count = 4, .bandwidth_bytes_per_s = 1'000'000'000};
  EXPECT_EQ(processor_ns(cluster, 4, {.sync = plan::GradientSync::ParameterServer}),
            2 * 3'000'000);  // M
  EXPECT_EQ(processor_ns(cluster, 4, {.sync = plan::GradientSync::Summation}), 2 * 3'000'000);
  // Under a level that joins nothing, and one whose links are slower.
  cluster.levels.insert(cluster.levels.begin(), {.name = "alone", .count = 1});
  cluster.levels.push_back({.name = "rack",
                            .count = 2,
                            .bandwidth_bytes_per_s = 100'000'000,
                            .processor_ns_per_gb = 500'000'000});
  EXPECT_EQ(processor_ns(cluster, 8, {}), 2 * 3'000'000 * 7 / 4);  // the highest on the way
}

TEST(Buckets, TakeProcessorTimeForEachMessage) {
  cluster::Cluster cluster = flat_cluster(4, 1'000'000'000, 7);
  cluster.levels[0].processor_ns_per_message = 1'000;
  // Buckets of 1 and 2 MB: what is sent in messages of 256 KiB or more has paid already.
  EXPECT_EQ(processor_ns(cluster, 2, {}), 0);
  const profile::Profile small = testing_graphs::chain({10, 20}, {300'000, 40'000}, {1, 1});
  const auto messages = [&](int replicas, const PlanOptions& options) {
    return sum_processor_ns(data_parallel(small, cluster, replicas, options).stages.front()) /
           1'000;
  };
  EXPECT_EQ(messages(2, {}), 2 - 300'000 / 262'144 + 2);
  EXPECT_EQ(messages(4, {}), 6 - 450'000 / 262'144 + 6);
  EXPECT_EQ(messages(4, {.sync = plan::GradientSync::Ring}), 6 - 450'000 / 262'144 + 6);
  cluster.levels[0].machine = true;
  cluster.levels.push_back({.name = "network", .count = 2, .bandwidth_bytes_per_s = 100'000'000});
  EXPECT_EQ(messages(8, {.sync = plan::GradientSync::Hierarchical}),
            2 * (3 + 1) - 525'000 / 262'144 + 2 * (3 + 1));
  cluster.levels[0].by_reference = true;
  EXPECT_EQ(messages(2, {}), 0);
}

TEST(Buckets, HierarchicalSharesWhatAMachineSends) {
  cluster::Cluster cluster = flat_cluster(4, 1'000'000'000);
  cluster.levels[0].processor_ns_per_gb = 1'000'000'000;
  cluster.levels[0].machine = true;
  cluster.levels.push_back({.name = "network",
                            .count = 2,
                            .bandwidth_bytes_per_s = 100'000'000,
                            .processor_ns_per_gb = 4'000'000'000});
  // 2 (4-1)/4 M inside, and a quarter of the machine's 2 (2-1)/2 M.
  EXPECT_EQ(processor_ns(cluster, 8, {.sync = plan::GradientSync::Hierarchical}),
            4'500'000 + 4 * 750'000);
  EXPECT_EQ(processor_ns(cluster, 4, {.sync = plan::GradientSync::Hierarchical}), 4'500'000);
}

TEST(Buckets, AreNoneInsideOneProcess) {
  const profile::Profile profile = testing_graphs::chain({10, 20}, {1'000'000, 1'000'000}, {1, 1});
  const plan::Plan plan = data_parallel(profile, flat_cluster(2, 1'000'000'000, 7, true), 2, {});
  EXPECT_TRUE(plan.stages.front().buckets.empty());
  EXPECT_EQ(sum_wait_ns(plan.stages.front(), SumsAreTaken::ByLayers), plan.stages.front().sync_ns);
}

}  // namespace
}  // namespace penstock::planner
