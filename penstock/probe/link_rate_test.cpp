// Links of meshes over the loopback.
#include "penstock/probe/link_rate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "penstock/net/host_id.h"
#include "penstock/net/testing_nodes.h"
#include "penstock/util/error.h"
#include "penstock/util/process/mutex.h"

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

TEST(LinkRateTest, AStopEndsItWhileNoMessagePasses) {
  const std::vector<Node> nodes = connected(2);
  start_quietly(nodes);
  std::atomic<bool> stop{false};
  std::jthread stopper([&stop] {
    std::this_thread::sleep_for(milliseconds(100));
    stop = true;
  });
  const auto begin = std::chrono::steady_clock::now();
  try {
    measure_link(*nodes[0].mesh, 1, {.to = 1, .from = 1, .stop = &stop}, milliseconds(10));
    ADD_FAILURE() << "measured without the other rank";
  } catch (const RuntimeError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("interrupted while the links"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

/// One end of a link of 25 kB/s (200 kbit/s) with 40 ms of latency, in memory.
class SlowEnd final : public net::Mesh {
 public:
  int rank() const override { return 0; }
  int ranks() const override { return 2; }
  void start(Handlers) override {}
  void tell(int, std::string) override {}
  void carry_by(std::unique_ptr<net::Carrier>, size_t) override {}
  void close_run(uint32_t) override {}
  bool look() override { return false; }
  net::Traffic traffic() const override { return {}; }
  std::string own_address() const override { return ""; }
  net::ClockOffset clock_offset(int) const override { return {}; }

  std::shared_ptr<net::Transfer> send(int, net::Tag tag, std::vector<net::Bytes> parts,
                                      std::shared_ptr<const void>, int) override {
    auto sent = std::make_shared<net::Transfer>();
    const uint64_t bytes = parts.front().size();
    sent_bytes += static_cast<int64_t>(bytes);
    free_at_ = std::max(free_at_, std::chrono::steady_clock::now()) +
               std::chrono::microseconds(bytes * 40);
    threads_.emplace_back([this, sent, tag, bytes, end = free_at_] {
      std::this_thread::sleep_until(end);
      sent->end(net::Transfer::Result::Done);
      std::this_thread::sleep_until(end + milliseconds(40));
      other->arrive(tag, bytes);
    });
    return sent;
  }
  std::shared_ptr<net::Transfer> receive(int, net::Tag tag, net::Place place) override {
    const MutexLock lock(mutex_);
    auto transfer = std::make_shared<net::Transfer>();
    posted_[tag] = {transfer, std::move(place)};
    deliver(tag);
    return transfer;
  }

  SlowEnd* other = nullptr;
  int64_t sent_bytes = 0;

 private:
  void arrive(net::Tag tag, uint64_t bytes) {
    const MutexLock lock(mutex_);
    came_[tag] = bytes;
    deliver(tag);
  }
  void deliver(net::Tag tag) REQUIRES(mutex_) {
    if (!came_.contains(tag) || !posted_.contains(tag)) return;
    posted_[tag].second({came_[tag]});
    posted_[tag].first->end(net::Transfer::Result::Done);
  }

  Mutex mutex_;
  std::map<net::Tag, std::pair<std::shared_ptr<net::Transfer>, net::Place>> posted_
      GUARDED_BY(mutex_);
  std::map<net::Tag, uint64_t> came_ GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point free_at_ = {};
  std::vector<std::jthread> threads_;
};

TEST(LinkRateTest, ASlowLinkIsGivenNoMoreThanItCarriesInSeconds) {
  std::array<LinkRate, 2> rates;
  std::array<SlowEnd, 2> ends;
  ends[0].other = &ends[1];
  ends[1].other = &ends[0];
  const auto begin = std::chrono::steady_clock::now();
  {
    std::vector<std::jthread> ranks;
    for (size_t r = 0; r < 2; ++r)
      ranks.emplace_back(
          [&, r] { rates[r] = measure_link(ends[r], 1, {.to = 0, .from = 0}, milliseconds(300)); });
  }
  // Three messages of 512 KiB alone would take a minute.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
  for (size_t r = 0; r < 2; ++r) {
    EXPECT_LT(ends[r].sent_bytes, 100'000);
    EXPECT_NEAR(static_cast<double>(rates[r].bytes_per_s), 25'000, 5'000);
  }
  // By as much as one rank begins later than the other, one of them measures less, the other more.
  EXPECT_GE(rates[0].latency_ns + rates[1].latency_ns, 2 * 40'000'000);
}

TEST(HostIdTest, IsTheSameForAllOfAProcess) {
  EXPECT_FALSE(net::host_id().empty());
  EXPECT_EQ(net::host_id(), net::host_id());
}

}  // namespace
}  // namespace penstock::probe
