// Messages whose bytes a carrier moves, by one that does what the test says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "penstock/net/mesh.h"
#include "penstock/net/testing_carrier.h"
#include "penstock/net/testing_nodes.h"

namespace penstock::net {
namespace {

using namespace testing_nodes;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr size_t kPiece = 100'000;
constexpr size_t kSmallest = 10'000;

/// Waits until it holds.
bool becomes(const std::function<bool()>& is_so) {
  const CondVar::Deadline deadline = soon();
  while (!is_so()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}

class MeshCarrier : public ::testing::Test {
 protected:
  void start(int ranks = 2, MeshOptions options = {}) {
    options.piece_bytes = kPiece;
    nodes_ = connected(ranks, options);
    for (int r = 0; r < ranks; ++r) {
      nodes_[static_cast<size_t>(r)].mesh->start({.note = [](int, const std::string&) {},
                                                  .lost =
                                                      [this, r](int peer, const std::string& why) {
                                                        MutexLock lock(mutex_);
                                                        lost_[{r, peer}] = why;
                                                      }});
    }
  }
  void carry(int rank) {
    mesh(rank).carry_by(std::make_unique<FakeCarrier>(table_, rank), kSmallest);
  }
  /// Returns when messages go by the carrier in both directions.
  void carry_all() {
    carry(0);
    carry(1);
    const auto block = block_of(kSmallest, 1);
    uint64_t sequence = 0;
    while (mesh(0).traffic().sent_by_carrier == 0 || mesh(1).traffic().sent_by_carrier == 0) {
      const Tag tag{.run = 1, .channel = 99, .sequence = sequence++};
      ASSERT_EQ(pass(nodes_, 0, 1, tag, block, std::make_shared<Parts>()), Transfer::Result::Done);
      ASSERT_EQ(pass(nodes_, 1, 0, tag, block, std::make_shared<Parts>()), Transfer::Result::Done);
    }
  }
  Mesh& mesh(int rank) { return *nodes_[static_cast<size_t>(rank)].mesh; }
  std::string lost(int rank, int peer) {
    MutexLock lock(mutex_);
    return lost_[{rank, peer}];
  }

  std::shared_ptr<PieceTable> table_ = std::make_shared<PieceTable>();
  Mutex mutex_;
  std::map<std::pair<int, int>, std::string> lost_ GUARDED_BY(mutex_);
  std::vector<Node> nodes_;  ///< last, so that no handler comes later
};

TEST_F(MeshCarrier, TakesPartsFromItsSmallestSizeAndTheConnectionTheOthers) {
  start();
  carry_all();
  const std::vector<size_t> sizes = {3, kSmallest, 0, 5 * kPiece + 17, kSmallest - 1, kPiece};
  std::vector<std::shared_ptr<Block>> blocks;
  std::vector<Bytes> parts = {Bytes()};  // left out
  for (const size_t size : sizes) parts.emplace_back(*blocks.emplace_back(block_of(size, size)));
  const auto got = std::make_shared<Parts>();
  const Tag tag{.run = 1, .sequence = 7};
  const Traffic before = mesh(0).traffic();
  const auto received = mesh(1).receive(0, tag, into(got));
  const auto sent = mesh(0).send(1, tag, parts, nullptr);
  ASSERT_EQ(received->wait(soon()), Transfer::Result::Done);
  ASSERT_EQ(sent->wait(soon()), Transfer::Result::Done);
  ASSERT_EQ(got->sizes.size(), sizes.size() + 1);
  EXPECT_EQ(got->sizes[0], kAbsent);
  for (size_t i = 0; i < sizes.size(); ++i) EXPECT_EQ(got->blocks[i + 1], *blocks[i]) << i;
  const Traffic after = mesh(0).traffic();
  const size_t carried = kSmallest + 5 * kPiece + 17 + kPiece;
  EXPECT_EQ(after.sent_by_carrier - before.sent_by_carrier, static_cast<int64_t>(carried));
  EXPECT_EQ(after.sent - before.sent, static_cast<int64_t>(carried + 3 + kSmallest - 1));
  EXPECT_EQ(after.sent_by_memory, before.sent_by_memory);
}

TEST_F(MeshCarrier, IsNotUsedWhereOnlyOneSideHasIt) {
  start(2, {.same_host_memory = false});
  carry(0);
  const auto block = block_of(3 * kPiece, 1);
  for (uint64_t i = 0; i < 20; ++i) {
    const auto got = std::make_shared<Parts>();
    ASSERT_EQ(pass(nodes_, i % 2, 1 - i % 2, {.run = 1, .sequence = i}, block, got),
              Transfer::Result::Done);
  }
  EXPECT_EQ(mesh(0).traffic().sent_by_carrier + mesh(1).traffic().sent_by_carrier, 0);
}

TEST_F(MeshCarrier, PiecesMayEndInAnyOrder) {
  start();
  carry_all();
  table_->hold(true);
  const auto block = block_of(9 * kPiece + 5, 2);
  const auto got = std::make_shared<Parts>();
  const Tag tag{.run = 1, .sequence = 1};
  const auto received = mesh(1).receive(0, tag, into(got));
  const auto sent = mesh(0).send(1, tag, {Bytes(*block)}, block);
  for (size_t done = 0; done < 10;) {
    // Four at once, the last of them first.
    ASSERT_TRUE(
        becomes([&] { return table_->waiting().size() == std::min<size_t>(4, 10 - done); }));
    EXPECT_FALSE(received->is_done());
    done += table_->let_go();
  }
  ASSERT_EQ(received->wait(soon()), Transfer::Result::Done);
  ASSERT_EQ(sent->wait(soon()), Transfer::Result::Done);
  EXPECT_EQ(got->blocks[0], *block);
}

TEST_F(MeshCarrier, WhatIsUrgentGoesFirstAndHasALaneOfItsOwn) {
  start();
  carry_all();
  table_->hold(true);
  const auto send = [&](uint64_t sequence, size_t bytes, int urgency) {
    const Tag tag{.run = 1, .sequence = sequence};
    const auto block = block_of(bytes, sequence);
    mesh(1).receive(0, tag, into(std::make_shared<Parts>()));
    return mesh(0).send(1, tag, {Bytes(*block)}, block, urgency);
  };
  const auto late = send(1, 6 * kPiece, -5);
  ASSERT_TRUE(becomes([&] { return table_->waiting().size() == 4; }));
  const auto sooner = send(2, kPiece - 1, -1);
  const auto now = send(3, kPiece - 2, 0);
  ASSERT_TRUE(becomes([&] { return table_->waiting().size() == 5; }));
  EXPECT_THAT(table_->waiting().back(), Pair(0, kPiece - 2));
  table_->let_go(2);
  ASSERT_TRUE(becomes([&] { return table_->waiting().size() == 4; }));
  EXPECT_THAT(table_->waiting().back(), Pair(1, kPiece - 1));
  EXPECT_EQ(now->wait(soon()), Transfer::Result::Done);
  while (!late->is_done()) table_->let_go();
  EXPECT_EQ(sooner->wait(soon()), Transfer::Result::Done);
}

TEST_F(MeshCarrier, ARunThatIsClosedKeepsItsMemoryUntilTheCarrierLetsGo) {
  start();
  carry_all();
  table_->hold(true);
  auto block = block_of(6 * kPiece, 3);
  auto got = std::make_shared<Parts>();
  const std::weak_ptr<Block> out = block;
  const std::weak_ptr<Parts> in = got;
  const Tag tag{.run = 1, .sequence = 1};
  const auto received = mesh(1).receive(0, tag, into(got));
  const auto sent = mesh(0).send(1, tag, {Bytes(*block)}, block);
  ASSERT_TRUE(becomes([&] { return table_->waiting().size() == 4; }));
  mesh(0).close_run(1);
  mesh(1).close_run(1);
  EXPECT_EQ(received->wait(soon()), Transfer::Result::Closed);
  EXPECT_EQ(sent->wait(soon()), Transfer::Result::Closed);
  block.reset();
  got.reset();
  EXPECT_FALSE(out.expired());
  EXPECT_FALSE(in.expired());
  table_->let_go();
  EXPECT_TRUE(becomes([&] { return out.expired() && in.expired(); }));
  // Both sides still name the same pieces.
  table_->hold(false);
  const auto next = block_of(3 * kPiece, 4);
  const auto next_got = std::make_shared<Parts>();
  ASSERT_EQ(pass(nodes_, 0, 1, {.run = 2}, next, next_got), Transfer::Result::Done);
}

TEST_F(MeshCarrier, PiecesOfARunThatTheReceiverHasClosedAreTakenAndThrownAway) {
  start();
  carry_all();
  table_->hold(true);
  const auto block = block_of(9 * kPiece, 3);
  const Tag tag{.run = 1, .sequence = 1};
  const auto received = mesh(1).receive(0, tag, into(std::make_shared<Parts>()));
  const auto sent = mesh(0).send(1, tag, {Bytes(*block)}, block);
  ASSERT_TRUE(becomes([&] { return table_->waiting().size() == 4; }));
  mesh(1).close_run(1);
  EXPECT_EQ(received->wait(soon()), Transfer::Result::Closed);
  table_->hold(false);
  table_->let_go();
  EXPECT_EQ(sent->wait(soon()), Transfer::Result::Done);
  const auto next = block_of(3 * kPiece, 4);
  const auto got = std::make_shared<Parts>();
  const auto next_received = mesh(1).receive(0, {.run = 2}, into(got));
  mesh(0).send(1, {.run = 2}, {Bytes(*next)}, next);
  ASSERT_EQ(next_received->wait(soon()), Transfer::Result::Done);
  EXPECT_EQ(got->blocks[0], *next);
}

TEST_F(MeshCarrier, AnErrorLosesThePeerWithTheReason) {
  start();
  carry_all();
  table_->hold(true);
  const auto block = block_of(2 * kPiece, 3);
  const Tag tag{.run = 1, .sequence = 1};
  const auto received = mesh(1).receive(0, tag, into(std::make_shared<Parts>()));
  const auto sent = mesh(0).send(1, tag, {Bytes(*block)}, block);
  ASSERT_TRUE(becomes([&] { return table_->waiting().size() == 2; }));
  table_->let_go(SIZE_MAX, "the cable is cut");
  EXPECT_EQ(received->wait(soon()), Transfer::Result::Closed);
  EXPECT_EQ(sent->wait(soon()), Transfer::Result::Closed);
  ASSERT_TRUE(becomes([&] { return !lost(0, 1).empty() && !lost(1, 0).empty(); }));
  // The other side sees the same error or the end of the connection.
  EXPECT_THAT(lost(0, 1) + lost(1, 0), HasSubstr("does not exchange messages any more: the cable"));
  EXPECT_TRUE(table_->lost().contains({0, 1}));
  nodes_.clear();
  EXPECT_THAT(table_->closed(), ElementsAre(Pair(0, false), Pair(1, false)));
}

TEST_F(MeshCarrier, APeerThatEndsBeforeItsPiecesAreThereEndsThem) {
  start();
  carry_all();
  table_->hold(true);
  const auto block = block_of(2 * kPiece, 3);
  const Tag tag{.run = 1, .sequence = 1};
  const auto received = mesh(1).receive(0, tag, into(std::make_shared<Parts>()));
  mesh(0).send(1, tag, {Bytes(*block)}, block);
  ASSERT_TRUE(becomes([&] { return table_->waiting().size() == 2; }));
  std::jthread end([this] { nodes_[0].mesh.reset(); });
  EXPECT_EQ(received->wait(soon()), Transfer::Result::Closed);
  ASSERT_TRUE(becomes([&] { return !lost(1, 0).empty(); }));
  EXPECT_EQ(lost(1, 0), "has ended");
  EXPECT_TRUE(table_->lost().contains({1, 0}));
}

TEST_F(MeshCarrier, ARankThatHasEndedIsLostWhenItsLastPiecesAreThere) {
  start();
  carry_all();
  table_->hold(true);
  const auto block = block_of(2 * kPiece, 3);
  const auto got = std::make_shared<Parts>();
  const Tag tag{.run = 1, .sequence = 1};
  const auto received = mesh(1).receive(0, tag, into(got));
  mesh(0).send(1, tag, {Bytes(*block)}, block);
  ASSERT_TRUE(becomes([&] { return table_->waiting().size() == 2; }));
  std::jthread end([this] { nodes_[0].mesh.reset(); });
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(lost(1, 0), "");
  table_->let_go();
  EXPECT_EQ(received->wait(soon()), Transfer::Result::Done);
  EXPECT_EQ(got->blocks[0], *block);
  end.join();
  ASSERT_TRUE(becomes([&] { return !lost(1, 0).empty(); }));
  // What the carrier has not noticed yet is not given up.
  EXPECT_TRUE(table_->lost().empty());
  nodes_.clear();
  EXPECT_THAT(table_->closed(), ElementsAre(Pair(0, true), Pair(1, true)));
}

TEST_F(MeshCarrier, ManyMessagesBetweenThreeRanksArriveWhole) {
  start(3);
  for (int r = 0; r < 3; ++r) carry(r);
  struct Way {
    std::shared_ptr<Block> block;
    std::shared_ptr<Parts> got = std::make_shared<Parts>();
    std::shared_ptr<Transfer> received;
  };
  std::vector<Way> ways;
  for (uint64_t i = 0; i < 120; ++i) {
    Way& way = ways.emplace_back();
    way.block = block_of(1 + i * 3'137 % (4 * kPiece), i);
    const int from = static_cast<int>(i % 3);
    const int to = static_cast<int>((i + 1 + i / 3 % 2) % 3);
    const Tag tag{.run = 1, .sequence = i};
    way.received = mesh(to).receive(from, tag, into(way.got));
    mesh(from).send(to, tag, {Bytes(*way.block)}, way.block, static_cast<int>(i % 5) - 3);
  }
  for (const Way& way : ways) {
    ASSERT_EQ(way.received->wait(soon()), Transfer::Result::Done);
    EXPECT_EQ(way.got->blocks[0], *way.block);
  }
}

}  // namespace
}  // namespace penstock::net
