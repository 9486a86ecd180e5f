// Links of meshes over the loopback.
#include "penstock/probe/link_rate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "penstock/net/host_id.h"
#include "penstock/net/testing_nodes.h"
#include "penstock/util/error.h"

namespace penstock::probe {
namespace {

using namespace net::testing_nodes;
using std::chrono::milliseconds;

TEST(LinkRateTest, AllRanksMeasureAtOnce) {
  constexpr int kRanks = 3;
  const std::vector<Node> nodes = connected(kRanks);
  start_quietly(nodes);
  for (const uint32_t run : {1U, 2U}) {
    std::vector<LinkRate> rates(kRanks);
    {
      std::vector<std::jthread> ranks;
      for (int r = 0; r < kRanks; ++r) {
        ranks.emplace_back([&, r] {
          rates[static_cast<size_t>(r)] =
              measure_link(*nodes[static_cast<size_t>(r)].mesh, run,
                           {.to = (r + 1) % kRanks, .from = (r + 2) % kRanks}, milliseconds(30));
        });
      }
    }
    for (const LinkRate& rate : rates) {
      EXPECT_GT(rate.bytes_per_s, 1'000'000);
      EXPECT_GT(rate.latency_ns, 100);
      EXPECT_LT(rate.latency_ns, 5'000'000'000);
    }
  }
}

TEST(LinkRateTest, OneMayOnlySendAndAnotherOnlyReceive) {
  const std::vector<Node> nodes = connected(3);
  start_quietly(nodes);
  std::vector<LinkRate> rates(3);
  const std::vector<LinkPeers> peers{{.to = 1}, {.from = 0}, {}};
  {
    std::vector<std::jthread> ranks;
    for (size_t r = 0; r < 3; ++r) {
      ranks.emplace_back(
          [&, r] { rates[r] = measure_link(*nodes[r].mesh, 1, peers[r], milliseconds(10)); });
    }
  }
  EXPECT_EQ(rates[0].bytes_per_s, 0);
  EXPECT_GT(rates[1].bytes_per_s, 0);
  EXPECT_EQ(rates[2].bytes_per_s, 0);
}

TEST(LinkRateTest, ALostRankIsAnError) {
  std::vector<Node> nodes = connected(2);
  start_quietly(nodes);
  nodes[1].mesh.reset();
  EXPECT_THROW(measure_link(*nodes[0].mesh, 1, {.to = 1, .from = 1}, milliseconds(10)),
               TransportError);
}

TEST(HostIdTest, IsTheSameForAllOfAProcess) {
  EXPECT_FALSE(net::host_id().empty());
  EXPECT_EQ(net::host_id(), net::host_id());
}

}  // namespace
}  // namespace penstock::probe
