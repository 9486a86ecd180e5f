// From what the ranks of a job say of their links to the cluster that a plan is made for.
#include "penstock/probe/job_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock::probe {
namespace {

const std::vector<int> kTwoByTwo{0, 0, 1, 1};

TEST(JobLinksTest, RanksMeasureInRings) {
  EXPECT_EQ(ring_in_host(kTwoByTwo, 0).to, 1);
  EXPECT_EQ(ring_in_host(kTwoByTwo, 0).from, 1);
  EXPECT_EQ(ring_in_host(kTwoByTwo, 3).to, 2);
  EXPECT_EQ(ring_between_hosts(kTwoByTwo, 0).to, 2);
  EXPECT_EQ(ring_between_hosts(kTwoByTwo, 2).from, 0);
  EXPECT_EQ(ring_between_hosts(kTwoByTwo, 1).to, -1);
  EXPECT_EQ(ring_in_host({0, 1, 2}, 1).to, -1);
  EXPECT_EQ(ring_between_hosts({0, 1, 2}, 1).to, 2);
  EXPECT_EQ(ring_between_hosts({0, 1, 2}, 1).from, 0);
  EXPECT_EQ(ring_between_hosts({0, 0}, 0).to, -1);
}

TEST(JobLinksTest, AllRanksExchangeAcrossHosts) {
  EXPECT_EQ(ring_across_hosts(kTwoByTwo, 0).to, 2);
  EXPECT_EQ(ring_across_hosts(kTwoByTwo, 1).to, 3);
  EXPECT_EQ(ring_across_hosts(kTwoByTwo, 3).from, 1);
  EXPECT_EQ(ring_across_hosts({0, 1, 2}, 2).to, 0);
  EXPECT_EQ(ring_across_hosts({0, 0, 1}, 1).to, -1);
  EXPECT_EQ(ring_across_hosts({0, 1, 0, 1}, 2).to, 3);
}

TEST(JobLinksTest, TheRankThatLosesMostSaysWhatSumsTake) {
  const MeasuredLink fast{.bytes_per_s = 4000, .latency_ns = 5};
  const MeasuredLink slow{.bytes_per_s = 25, .latency_ns = 300};
  const auto loss = [](double ns, double message_ns = 0) {
    Losses losses;
    losses.exchange.samples.fill(ns);
    losses.message.samples.fill(message_ns);
    return losses;
  };
  const JobLinks links = summary({{0, fast, slow, loss(3), loss(8e9, 40'000)},
                                  {0, fast, {}, loss(2, 70), loss(1, 50'000)},
                                  {1, fast, slow, loss(-1), loss(-4)},
                                  {1, fast, {}, loss(0), loss(2)}},
                                 0);
  const cluster::Cluster cluster = cluster_of(links, 8, 9000);
  EXPECT_EQ(cluster.levels[0].processor_ns_per_gb, 0);
  EXPECT_EQ(cluster.levels[1].processor_ns_per_gb, 3);
  EXPECT_EQ(cluster.levels[2].processor_ns_per_gb, 8'000'000'000);
  // Less what their 4 KiB cost.
  EXPECT_EQ(cluster.levels[1].processor_ns_per_message, 70 - 1);
  EXPECT_EQ(cluster.levels[2].processor_ns_per_message, 50'000 - 32'768);
  EXPECT_NE(links_text(links).find("sums take 8.00 s of processor time per GB"), std::string::npos)
      << links_text(links);
}

TEST(JobLinksTest, ACompleteClusterHasThreeLevels) {
  const MeasuredLink fast{.bytes_per_s = 4000, .latency_ns = 5};
  const MeasuredLink slow{.bytes_per_s = 25, .latency_ns = 300};
  const MeasuredLink slower{.bytes_per_s = 20, .latency_ns = 250};
  const JobLinks links = summary({{0, fast, slow}, {0, fast}, {1, fast, slower}, {1, fast}},
                                 /*servers=*/3);
  const cluster::Cluster cluster = cluster_of(links, 8, 9000);
  cluster::validate(cluster);
  ASSERT_EQ(cluster.levels.size(), 3U);
  EXPECT_EQ(cluster.levels[0].count, 2);
  EXPECT_TRUE(cluster.levels[0].by_reference);
  EXPECT_EQ(cluster.levels[0].bandwidth_bytes_per_s, 9000);
  EXPECT_EQ(cluster.levels[1].count, 2);
  EXPECT_EQ(cluster.levels[1].bandwidth_bytes_per_s, 4000);
  EXPECT_EQ(cluster.levels[2].count, 2);
  EXPECT_EQ(cluster.levels[2].bandwidth_bytes_per_s, 20);
  EXPECT_EQ(cluster.levels[2].latency_ns, 300);
  EXPECT_EQ(cluster.machine_level(), 2);  // a host, not a process of it
  EXPECT_EQ(cluster.cpu_machines.count, 3);
  EXPECT_EQ(cluster.cpu_machines.bandwidth_bytes_per_s, 20);
}

TEST(JobLinksTest, OneWorkerBesideServersIsACluster) {
  const MeasuredLink link{.bytes_per_s = 4000, .latency_ns = 5};
  const cluster::Cluster cluster = cluster_of(summary({{0, link, {}}, {0, link, {}}}, 1), 1, 9000);
  EXPECT_EQ(cluster.num_workers(), 1);
  EXPECT_EQ(cluster.levels.size(), 1u);
}

TEST(JobLinksTest, LevelsThatJoinNothingAreLeftOut) {
  const MeasuredLink link{.bytes_per_s = 100, .latency_ns = 7};
  const cluster::Cluster host = cluster_of(summary({{0, link}, {0, link}}, 1), 2, 1);
  ASSERT_EQ(host.levels.size(), 1U);
  EXPECT_EQ(host.levels[0].name, "host");
  EXPECT_EQ(host.cpu_machines.count, 0);
  const cluster::Cluster hosts = cluster_of(summary({{0, {}, link}, {1, {}, link}}, 0), 2, 1);
  ASSERT_EQ(hosts.levels.size(), 1U);
  EXPECT_EQ(hosts.levels[0].name, "network");
  EXPECT_EQ(hosts.machine_level(), 0);
  EXPECT_EQ(host.machine_level(), 1);
  const cluster::Cluster threads = cluster_of(summary({{0, {}, link}, {1, {}, link}}, 0), 4, 1);
  ASSERT_EQ(threads.levels.size(), 2U);
  EXPECT_EQ(threads.machine_level(), 1);
  EXPECT_EQ(cluster_of(summary({{0}}, 0), 4, 1).machine_level(), 0);
}

TEST(JobLinksTest, UnevenJobsAreAsFastAsTheirSlowestLink) {
  const MeasuredLink fast{.bytes_per_s = 4000, .latency_ns = 5};
  const MeasuredLink slow{.bytes_per_s = 25, .latency_ns = 300};
  for (const auto& ranks :
       {std::vector<RankLinks>{{0, fast, slow}, {0, fast}, {1, {}, slow}},
        std::vector<RankLinks>{{0, fast, slow}, {1, fast, slow}, {0, fast}, {1, fast}}}) {
    const auto workers = static_cast<int>(ranks.size());
    const cluster::Cluster cluster = cluster_of(summary(ranks, 0), workers, 1);
    ASSERT_EQ(cluster.levels.size(), 1U);
    EXPECT_EQ(cluster.levels[0].count, workers);
    EXPECT_EQ(cluster.levels[0].bandwidth_bytes_per_s, 25);
    EXPECT_EQ(cluster.levels[0].latency_ns, 300);
  }
  const cluster::Cluster uneven = cluster_of(summary({{0, fast}, {0, fast}}, 0), 3, 1);
  ASSERT_EQ(uneven.levels.size(), 1U);
  EXPECT_EQ(uneven.levels[0].count, 3);
}

}  // namespace
}  // namespace penstock::probe
