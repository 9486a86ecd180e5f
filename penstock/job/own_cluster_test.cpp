#include "penstock/job/own_cluster.h"

#include <gtest/gtest.h>

namespace penstock::job {
namespace {

TEST(OwnCluster, ThreadsShareMemory) {
  const cluster::Cluster threads = own_cluster(3, 9'000'000'000, 5'000, std::nullopt);
  EXPECT_EQ(threads.num_workers(), 3);
  EXPECT_TRUE(threads.levels.front().by_reference);
  EXPECT_EQ(threads.levels.front().bandwidth_bytes_per_s, 9'000'000'000);
  EXPECT_EQ(threads.levels.front().latency_ns, 5'000);
}

TEST(OwnCluster, WorkersOnSeveralGpusHaveLinks) {
  const cluster::Cluster gpus = own_cluster(4, 900'000'000'000, 5'000,
                                            cluster::Level{.name = "process",
                                                           .bandwidth_bytes_per_s = 50'000'000'000,
                                                           .latency_ns = 7,
                                                           .sums_wait = true});
  EXPECT_EQ(gpus.num_workers(), 4);
  EXPECT_FALSE(gpus.levels.front().by_reference);
  EXPECT_TRUE(gpus.levels.front().sums_wait);
  EXPECT_EQ(gpus.levels.front().bandwidth_bytes_per_s, 50'000'000'000);
  EXPECT_EQ(gpus.levels.front().latency_ns, 7);
}

}  // namespace
}  // namespace penstock::job
