#include "penstock/planner/pricing/traffic.h"

#include <gtest/gtest.h>

#include <numeric>

#include "penstock/planner/cost/named_models.h"
#include "penstock/planner/testing/testing_graphs.h"

namespace penstock::planner {
namespace {

using cluster::WorkerRange;

TEST(ShareWithinUnit, IsTheShareOfPairsThatMeet) {
  for (uint64_t seed = 0; seed < 5'000; ++seed) {
    Rng rng(seed);
    WorkerRange a{static_cast<int>(rng.below(6)), static_cast<int>(1 + rng.below(9))};
    WorkerRange b{a.end() + static_cast<int>(rng.below(4)), static_cast<int>(1 + rng.below(9))};
    if (rng.below(2) == 0) std::swap(a, b);
    const int unit = static_cast<int>(1 + rng.below(8));
    const int rounds = std::lcm(a.count, b.count);
    int within = 0;
    for (int i = 0; i < rounds; ++i)
      within += (a.first + i % a.count) / unit == (b.first + i % b.count) / unit ? 1 : 0;
    ASSERT_NEAR(share_within_unit(a, b, unit), static_cast<double>(within) / rounds, 1e-12)
        << "seed " << seed;
  }
}

cluster::Cluster racked_servers(int per_server, int count) {
  cluster::Cluster cluster = testing_graphs::flat_cluster(per_server, 10'000'000'000);
  cluster.levels.push_back(
      {.name = "rack", .count = count, .bandwidth_bytes_per_s = 1'000'000'000, .latency_ns = 0});
  return cluster;
}

std::vector<double> bytes_of_dp(const cluster::Cluster& cluster, int replicas, GradientSync sync,
                                FloatType precision = FloatType::Float32) {
  plan::Plan plan;
  plan.cluster = cluster;
  plan.micro_batches = replicas;
  plan.stages = {{.layers = {"a"}, .replicas = replicas, .weight_bytes = 1200, .first_worker = 0}};
  std::vector<double> bytes = bytes_per_sample(
      plan, *make_cost_model("penstock", cluster, sync, SyncOverlap::Hidden, precision));
  for (double& value : bytes) value *= replicas;
  return bytes;
}

TEST(BytesPerSample, ARingLeavesEveryServerOnce) {
  // 6 workers pass on 2(r-1)/r W each; of the 6 hops 3 leave a server.
  EXPECT_EQ(bytes_of_dp(racked_servers(2, 3), 6, GradientSync::Ring),
            (std::vector<double>{6 * 2000, 3 * 2000}));
  EXPECT_EQ(bytes_of_dp(racked_servers(6, 1), 6, GradientSync::Ring),
            (std::vector<double>{6 * 2000, 0}));
  EXPECT_EQ(bytes_of_dp(racked_servers(2, 3), 2, GradientSync::Ring),
            (std::vector<double>{2 * 1200, 0}));
}

TEST(BytesPerSample, GradientsIn16BitsAreHalfOfThem) {
  EXPECT_EQ(bytes_of_dp(racked_servers(2, 3), 6, GradientSync::Ring, FloatType::BFloat16),
            (std::vector<double>{6 * 1000, 3 * 1000}));
  cluster::Cluster threads = racked_servers(2, 3);
  threads.levels.front().by_reference = true;
  EXPECT_EQ(bytes_of_dp(threads, 6, GradientSync::Ring, FloatType::Float16),
            (std::vector<double>{6 * 2000, 3 * 1000}));
}

TEST(BytesPerSample, AParameterServerTalksToEveryone) {
  // Colocated: each ordered pair exchanges W/r twice; 24 of the 30 pairs are in different servers.
  EXPECT_EQ(bytes_of_dp(racked_servers(2, 3), 6, GradientSync::ParameterServer),
            (std::vector<double>{30 * 400, 24 * 400}));
  cluster::Cluster cluster = racked_servers(2, 3);
  cluster.cpu_machines = {.count = 2, .bandwidth_bytes_per_s = 1'000'000'000};
  EXPECT_EQ(bytes_of_dp(cluster, 6, GradientSync::ParameterServer),
            (std::vector<double>{12 * 1200, 12 * 1200}));
}

TEST(BytesPerSample, SummationServicesShareTheWeightsSoThatAllFinishTogether) {
  cluster::Cluster cluster = racked_servers(1, 6);
  cluster.cpu_machines = {.count = 6, .bandwidth_bytes_per_s = 1'000'000'000};
  // As many CPU machines as workers keep everything: each worker sends and takes W.
  EXPECT_EQ(bytes_of_dp(cluster, 6, GradientSync::Summation), (std::vector<double>{0, 12 * 1200}));
  cluster.cpu_machines.count = 2;
  // k = 2, n = 6: k machines keep 2(n-1)/(n^2+kn-2k) W each.
  const double remote = 2 * 10.0 / (36 + 12 - 4);
  const double bytes = 12 * 1200 * remote + 30 * 400 * (1 - remote);
  EXPECT_NEAR(bytes_of_dp(cluster, 6, GradientSync::Summation)[1], bytes, 1e-6);
}

TEST(BytesPerSample, MachinesSendWhatTheyAddedInside) {
  // In each of three servers both replicas exchange W/2 twice; each pair of servers W/3 twice.
  EXPECT_EQ(bytes_of_dp(racked_servers(2, 3), 6, GradientSync::Hierarchical),
            (std::vector<double>{6 * 1200, 6 * 800}));
  // Two servers and a half: the last replica has nothing to add inside.
  EXPECT_EQ(bytes_of_dp(racked_servers(2, 3), 5, GradientSync::Hierarchical),
            (std::vector<double>{4 * 1200, 6 * 800}));
  EXPECT_EQ(bytes_of_dp(racked_servers(2, 3), 2, GradientSync::Hierarchical),
            (std::vector<double>{2 * 1200, 0}));
  cluster::Cluster cluster = racked_servers(2, 3);
  cluster.cpu_machines = {.count = 3, .bandwidth_bytes_per_s = 1'000'000'000};
  EXPECT_EQ(bytes_of_dp(cluster, 6, GradientSync::Hierarchical),
            (std::vector<double>{6 * 1200, 6 * 1200}));
}

TEST(BytesPerSample, WorkersOfSeveralStagesAreListedByMachine) {
  plan::Plan plan;
  plan.cluster = racked_servers(2, 2);
  plan.stages = {{.layers = {"a"}, .replicas = 3, .weight_bytes = 1200, .first_worker = -1}};
  plan.worker_of_replica = {0, 3, 2};
  plan.micro_batches = 1;
  EXPECT_EQ(bytes_per_sample(
                plan, *make_cost_model("penstock", plan.cluster, GradientSync::Hierarchical)),
            (std::vector<double>{2 * 1200, 2 * 1200}));
}

TEST(BytesPerSample, MessagesCountAtEveryLevelTheyPass) {
  const cluster::Cluster cluster = racked_servers(2, 2);
  plan::Plan plan;
  plan.cluster = cluster;
  plan.micro_batch_size = 5;
  plan.stages = {{.layers = {"a"}, .replicas = 3, .first_worker = 0},
                 {.layers = {"b"}, .replicas = 1, .first_worker = 3}};
  plan.links = {{StageId{0}, StageId{1}, 30}};
  const std::vector<double> bytes =
      bytes_per_sample(plan, *make_cost_model("penstock", cluster, GradientSync::Ring));
  EXPECT_DOUBLE_EQ(bytes[0], 2 * 30 / 5.0);
  EXPECT_DOUBLE_EQ(bytes[1], 2 * 30 / 5.0 * 2 / 3);
}

}  // namespace
}  // namespace penstock::planner
