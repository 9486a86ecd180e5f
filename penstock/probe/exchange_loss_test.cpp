// Exchanges between meshes over the loopback. How much they take depends on the machine; what does
// not is tested.
#include "penstock/probe/exchange_loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "penstock/net/testing_nodes.h"
#include "penstock/util/error.h"

namespace penstock::probe {
namespace {

using namespace net::testing_nodes;
using std::chrono::milliseconds;

using Measure = Loss (*)(net::Mesh&, uint32_t, const LinkPeers&, const LossOptions&);

/// Of gradients, and of short messages.
class LossTest : public testing::TestWithParam<Measure> {};
INSTANTIATE_TEST_SUITE_P(All, LossTest,
                         testing::Values(measure_exchange_loss, measure_message_loss));

/// What each rank measures, one thread on each, all at once.
std::vector<Loss> measured(const std::vector<Node>& nodes, uint32_t run,
                           const std::vector<LinkPeers>& peers, const LossOptions& options) {
  std::vector<Loss> losses(nodes.size());
  std::vector<std::jthread> ranks;
  for (size_t r = 0; r < nodes.size(); ++r) {
    ranks.emplace_back(
        [&, r] { losses[r] = LossTest::GetParam()(*nodes[r].mesh, run, peers[r], options); });
  }
  ranks.clear();
  return losses;
}

TEST_P(LossTest, AllRanksComputeAndExchangeAtOnce) {
  const std::vector<Node> nodes = connected(3);
  start_quietly(nodes);
  std::atomic<int> threads = 0;
  std::atomic<int64_t> units = 0;
  const LossOptions options{.threads = 2,
                            .work =
                                [&] {
                                  ++threads;
                                  return [&] { ++units; };
                                },
                            .budget = milliseconds(30)};
  for (const uint32_t run : {1U, 2U}) {
    const std::vector<Loss> losses = measured(
        nodes, run, {{.to = 1, .from = 2}, {.to = 2, .from = 0}, {.to = 0, .from = 1}}, options);
    for (const Loss& loss : losses) {
      for (const double ns : loss.samples) EXPECT_TRUE(std::isfinite(ns));
      // Not even on a machine that is overloaded hundreds of times.
      EXPECT_LT(loss.median_ns(), 1'000'000'000'000);
    }
  }
  EXPECT_EQ(threads, 2 * 3 * 2);
  EXPECT_GT(units, 0);
}

TEST_P(LossTest, WithoutPeersNothingIsLost) {
  const std::vector<Node> nodes = connected(2);
  start_quietly(nodes);
  const auto idle = [] { return [] { std::this_thread::yield(); }; };
  for (const int threads : {0, 1}) {
    const std::vector<Loss> losses =
        measured(nodes, 1 + static_cast<uint32_t>(threads), {{}, {}},
                 {.threads = threads, .work = idle, .budget = milliseconds(10)});
    EXPECT_EQ(losses[0].samples, Loss().samples);
    EXPECT_EQ(losses[1].median_ns(), 0);
  }
}

TEST_P(LossTest, RanksThatOnlyMoveLoseNothing) {
  const std::vector<Node> nodes = connected(2);
  start_quietly(nodes);
  const std::vector<Loss> losses =
      measured(nodes, 1, {{.to = 1, .from = 1}, {.to = 0, .from = 0}},
               {.threads = 0, .work = nullptr, .budget = milliseconds(10)});
  EXPECT_EQ(losses[0].samples, Loss().samples);
}

TEST(ExchangeLossTest, CountsTheSlowestRankOfEachExchangeAndTheirMedian) {
  Loss loss{{1, 0, 9, 0, 0, 8, -5}};
  EXPECT_EQ(loss.median_ns(), 0);
  loss.slowest({{0, 7, 0, 6, 5, 0, -5}});
  EXPECT_EQ(loss.samples, (std::array<double, 7>{1, 7, 9, 6, 5, 8, -5}));
  EXPECT_EQ(loss.median_ns(), 6);
  EXPECT_EQ((Loss{{-1, -1, -1, -1, -1, 2, 2}}).median_ns(), 0);
}

TEST_P(LossTest, ALostRankIsAnError) {
  std::vector<Node> nodes = connected(2);
  start_quietly(nodes);
  nodes[1].mesh.reset();
  EXPECT_THROW(GetParam()(*nodes[0].mesh, 1, {.to = 1, .from = 1},
                          {.threads = 0, .work = nullptr, .budget = milliseconds(10)}),
               TransportError);
}

}  // namespace
}  // namespace penstock::probe
