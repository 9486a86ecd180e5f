// From what the ranks of a job have measured to a cluster file.
#include "penstock/probe/job_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/util/error.h"
#include "penstock/util/files/json.h"

namespace penstock::probe {
namespace {

using testing::HasSubstr;

constexpr MeasuredLink kFast{.bytes_per_s = 4'000'000'000, .latency_ns = 60'000};
constexpr MeasuredLink kSlow{.bytes_per_s = 25'000'000, .latency_ns = 300'000};

RankProbe rank(int64_t flops) {
  return {.machine = {.processor = "EPYC", .cores = 4, .memory_bytes = 16'000'000'000},
          .sum_bytes_per_s = 5'000'000'000,
          .flops = flops};
}

JobProbe two_hosts(int64_t other_flops) {
  return {
      .links = summary({{0, kFast, kSlow}, {0, kFast}, {1, kFast, kSlow}, {1, kFast}}, 1),
      .ranks = {rank(60'000'000'000), rank(60'000'000'000), rank(other_flops), rank(other_flops)},
      .workers_per_rank = 2};
}

TEST(JobProbeTest, MessagesComeBack) {
  EXPECT_EQ(decode(encode(rank(7))), rank(7));
  EXPECT_THROW(decode("short"), TransportError);
}

TEST(JobProbeTest, EqualHostsAreACluster) {
  const cluster::Cluster cluster = cluster_of(two_hosts(55'000'000'000));
  EXPECT_EQ(cluster.num_workers(), 8);
  ASSERT_EQ(cluster.levels.size(), 3U);
  EXPECT_TRUE(cluster.uniform());
  EXPECT_EQ(cluster.device.memory_bytes, 4'000'000'000);
  EXPECT_EQ(cluster.cpu_machines.count, 1);
  const std::string text = to_toml(two_hosts(55'000'000'000));
  EXPECT_EQ(cluster::parse_cluster(text, "probe.toml"), cluster);
  EXPECT_THAT(text, HasSubstr("# host 1: EPYC, 4 cores, 16.0 GB of memory, 2 ranks"));
}

TEST(JobProbeTest, ASlowHostIsAGroup) {
  const cluster::Cluster cluster = cluster_of(two_hosts(20'000'000'000));
  ASSERT_EQ(cluster.groups.size(), 2U);
  EXPECT_EQ(cluster.groups[1].first, 4);
  EXPECT_EQ(cluster.groups[1].count, 4);
  EXPECT_DOUBLE_EQ(cluster.groups[0].device.speed, 1.5);
  EXPECT_DOUBLE_EQ(cluster.groups[1].device.speed, 0.5);
  EXPECT_EQ(cluster.groups[1].device.memory_bytes, 4'000'000'000);
  EXPECT_EQ(cluster::parse_cluster(to_toml(two_hosts(20'000'000'000)), "probe.toml"), cluster);
}

TEST(JobProbeTest, TooManyWorkersAndUnevenJobsAreNoted) {
  JobProbe job = two_hosts(60'000'000'000);
  EXPECT_TRUE(notes(job).empty());
  job.workers_per_rank = 3;
  EXPECT_THAT(notes(job), testing::ElementsAre(HasSubstr("host 0: 6 workers share 4 cores"),
                                               HasSubstr("host 1: 6 workers")));
  job.workers_per_rank = 1;
  job.links = summary({{0, kFast, kSlow}, {1, kFast, kSlow}, {0, kFast}, {1, kFast}}, 0);
  EXPECT_THAT(notes(job),
              testing::ElementsAre(HasSubstr("not dealt to the hosts in equal blocks")));
  const Json document = parse_json(to_json(job), "probe");
  EXPECT_EQ(document["hosts"].size(), 2U);
  EXPECT_EQ(document["link_between_hosts"]["bytes_per_s"], 25'000'000);
}

}  // namespace
}  // namespace penstock::probe
