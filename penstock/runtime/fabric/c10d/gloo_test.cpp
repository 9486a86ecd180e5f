// Messages of a mesh whose bytes go by Gloo. The ranks are threads of one process, each with groups
// of its own.
#include "penstock/runtime/fabric/c10d/gloo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/net/testing_nodes.h"

namespace penstock::runtime {
namespace {

using namespace net::testing_nodes;
using net::Bytes;
using net::Mesh;
using net::Tag;
using net::Transfer;
using std::chrono::milliseconds;

/// What GlooSetup::put and get share between threads.
class Board {
 public:
  void put(const std::string& key, const std::string& value) {
    MutexLock lock(mutex_);
    texts_[key] = value;
    changed_.notify_all();
  }
  std::string get(const std::string& key) {
    MutexLock lock(mutex_);
    changed_.wait_until(mutex_, soon(), [&] { return texts_.contains(key); });
    return texts_.at(key);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, std::string> texts_ GUARDED_BY(mutex_);
};

class Gloo : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_gloo()) GTEST_SKIP() << "this build has no Gloo";
  }
  void start(int ranks) {
    nodes_ = connected(ranks);
    start_quietly(nodes_);
    std::vector<std::jthread> threads;
    for (int r = 0; r < ranks; ++r) {
      threads.emplace_back([this, r, ranks] {
        Mesh& own = mesh(r);
        auto carrier = make_gloo_carrier(
            {.rank = r,
             .ranks = ranks,
             .address = own.own_address(),
             .put = [this](const auto& key, const auto& value) { board_.put(key, value); },
             .get = [this](const auto& key) { return board_.get(key); }});
        own.carry_by(std::move(carrier), 1);
      });
    }
    threads.clear();
    // Until all know of each other.
    for (int from = 0; from < ranks; ++from) {
      for (int to = 0; to < ranks; ++to) {
        uint64_t sequence = 0;
        while (from != to && !is_carried(from, to, sequence++)) {
        }
      }
    }
  }
  bool is_carried(int from, int to, uint64_t sequence) {
    const int64_t before = mesh(from).traffic().sent_by_carrier;
    const Tag tag{.run = 1, .channel = 99, .sequence = sequence};
    EXPECT_EQ(pass(nodes_, from, to, tag, block_of(1, 1), std::make_shared<Parts>()),
              Transfer::Result::Done);
    return mesh(from).traffic().sent_by_carrier > before;
  }
  Mesh& mesh(int rank) { return *nodes_[static_cast<size_t>(rank)].mesh; }

  Board board_;
  std::vector<Node> nodes_;
};

TEST_F(Gloo, MessagesOfAllSizesArriveWholeBetweenThreeRanks) {
  start(3);
  struct Way {
    std::shared_ptr<Block> block;
    std::shared_ptr<Parts> got = std::make_shared<Parts>();
    std::shared_ptr<Transfer> received;
  };
  std::vector<Way> ways;
  for (uint64_t i = 0; i < 90; ++i) {
    Way& way = ways.emplace_back();
    way.block = block_of(1 + i * i * 431, i);
    const int from = static_cast<int>(i % 3);
    const int to = static_cast<int>((i + 1 + i / 3 % 2) % 3);
    const Tag tag{.run = 1, .sequence = i};
    way.received = mesh(to).receive(from, tag, into(way.got));
    mesh(from).send(to, tag, {Bytes(*way.block)}, way.block, static_cast<int>(i % 4) - 2);
  }
  for (const Way& way : ways) {
    ASSERT_EQ(way.received->wait(soon()), Transfer::Result::Done);
    EXPECT_EQ(way.got->blocks[0], *way.block);
  }
}

TEST_F(Gloo, ARunThatIsClosedInTheMiddleLeavesTheNextOneAlone) {
  start(2);
  for (uint32_t run = 1; run < 10; ++run) {
    const auto block = block_of(20'000'000, run);
    const auto received = mesh(1).receive(0, {.run = run}, into(std::make_shared<Parts>()));
    const auto sent = mesh(0).send(1, {.run = run}, {Bytes(*block)}, block);
    std::this_thread::sleep_for(milliseconds(2 * run));
    mesh(0).close_run(run);
    mesh(1).close_run(run);
    EXPECT_NE(sent->wait(soon()), Transfer::Result::TimedOut);
    EXPECT_NE(received->wait(soon()), Transfer::Result::TimedOut);
  }
  const auto block = block_of(3'000'000, 1);
  const auto got = std::make_shared<Parts>();
  const auto received = mesh(1).receive(0, {.run = 10}, into(got));
  mesh(0).send(1, {.run = 10}, {Bytes(*block)}, block);
  ASSERT_EQ(received->wait(soon()), Transfer::Result::Done);
  EXPECT_EQ(got->blocks[0], *block);
}

TEST_F(Gloo, ARankThatEndsInTheMiddleEndsTheTransfersOfTheOther) {
  start(2);
  const auto block = block_of(50'000'000, 3);
  const auto received = mesh(1).receive(0, {.run = 1}, into(std::make_shared<Parts>()));
  mesh(0).send(1, {.run = 1}, {Bytes(*block)}, block);
  std::this_thread::sleep_for(milliseconds(5));
  nodes_[0].mesh.reset();
  EXPECT_EQ(received->wait(soon()), Transfer::Result::Closed);
}

}  // namespace
}  // namespace penstock::runtime
