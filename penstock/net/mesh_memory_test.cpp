// Messages that a mesh copies from the memory of a rank on the same host, and what happens when it
// cannot. Rank 1 is a mesh, another process, or a test that writes frames by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <optional>

#include "penstock/net/frame.h"
#include "penstock/net/mesh.h"
#include "penstock/net/same_host.h"
#include "penstock/net/testing_nodes.h"
#include "penstock/net/testing_puppet.h"
#include "penstock/net/wire.h"

namespace penstock::net {
namespace {

using namespace testing_nodes;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

TEST(MeshMemory, BringsMessagesBelowAndAboveTheSizeThatIsAskedFor) {
  const std::vector<Node> nodes = connected(2, {.same_host_bytes = 10'000});
  start_quietly(nodes);
  ASSERT_TRUE(read_each_other(nodes));
  for (const size_t bytes : {0, 1, 9'999, 10'000, 10'001, 3'000'000}) {
    const auto block = block_of(bytes, bytes);
    const auto parts = std::make_shared<Parts>();
    const Traffic before = nodes[0].mesh->traffic();
    ASSERT_EQ(pass(nodes, 0, 1, {.run = 1, .sequence = bytes}, block, parts),
              Transfer::Result::Done);
    const Traffic after = nodes[0].mesh->traffic();
    EXPECT_EQ(after.sent - before.sent, static_cast<int64_t>(bytes));
    EXPECT_EQ(after.sent_by_memory - before.sent_by_memory, static_cast<int64_t>(bytes));
  }
}

TEST(MeshMemory, OffersMessagesFromTheSizeThatIsAskedFor) {
  Puppet rank({.same_host_bytes = 1500});
  rank.be_read();
  rank.write({.kind = FrameKind::Reads});
  const auto block = block_of(1500, 1);
  rank.mesh().send(1, {.run = 1}, {Bytes(*block)}, block);
  EXPECT_EQ(rank.be_offered({.run = 1}).sizes, (std::vector<uint64_t>{1500}));
  rank.mesh().send(1, {.run = 1, .sequence = 1}, {Bytes(*block).first(1499)}, block);
  rank.write({.kind = FrameKind::Posted, .tag = {.run = 1, .sequence = 1}});
  EXPECT_EQ(rank.read_kind(), FrameKind::Sizes);
}

TEST(MeshMemory, HasRoomForHundredsOfPartsOfAMessage) {
  const std::vector<Node> nodes = connected(2, {.piece_bytes = 50'000, .same_host_bytes = 1});
  start_quietly(nodes);
  ASSERT_TRUE(read_each_other(nodes));
  const auto block = block_of(400'000, 1);
  std::vector<Bytes> parts;
  for (size_t i = 0, at = 0; i < 500; ++i) {
    const size_t bytes = i % 5 == 0 ? 0 : i;
    if (i % 7 == 0)
      parts.emplace_back();
    else
      parts.push_back(Bytes(*block).subspan(at, bytes));
    at += bytes;
  }
  const auto received = std::make_shared<Parts>();
  const auto receive = nodes[1].mesh->receive(0, {.run = 1}, into(received));
  nodes[0].mesh->send(1, {.run = 1}, parts, block);
  ASSERT_EQ(receive->wait(soon()), Transfer::Result::Done);
  ASSERT_EQ(received->sizes.size(), parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(received->sizes[i], parts[i].data() == nullptr ? kAbsent : parts[i].size());
    EXPECT_TRUE(std::ranges::equal(received->blocks[i], parts[i])) << i;
  }
}

TEST(MeshMemory, ARankThatDoesNotWantToIsNotReadAndDoesNotRead) {
  MeshOptions options{.ranks = 2, .port = free_port(), .same_host_bytes = 1};
  std::vector<Node> nodes(2);
  std::jthread second([&nodes, options]() mutable {
    options.rank = 1;
    options.same_host_memory = false;
    nodes[1].mesh = Mesh::connect(options);
  });
  nodes[0].mesh = Mesh::connect(options);
  second.join();
  start_quietly(nodes);
  const auto block = block_of(200'000, 1);
  for (uint64_t i = 0; i < 50; ++i) {
    const auto parts = std::make_shared<Parts>();
    ASSERT_EQ(pass(nodes, 0, 1, {.run = 1, .sequence = i}, block, parts), Transfer::Result::Done);
    ASSERT_EQ(pass(nodes, 1, 0, {.run = 1, .sequence = i}, block, parts), Transfer::Result::Done);
  }
  for (const Node& node : nodes) {
    EXPECT_EQ(node.mesh->traffic().sent, 50 * 200'000);
    EXPECT_EQ(node.mesh->traffic().sent_by_memory, 0);
  }
}

// ---- a rank in another process

constexpr size_t kLarge = 48 << 20;

MeshOptions slow_job() {
  // Small pieces, so that a large message takes its time.
  return {.ranks = 2, .port = free_port(), .piece_bytes = 1 << 10, .same_host_bytes = 1};
}

/// Receives messages of rank 1 until one comes by memory.
void wait_for_memory(Mesh& mesh) {
  for (uint64_t i = 0; mesh.traffic().received_by_memory == 0; ++i) {
    const auto parts = std::make_shared<Parts>();
    ASSERT_EQ(mesh.receive(1, {.run = 1, .channel = 1, .sequence = i}, into(parts))->wait(soon()),
              Transfer::Result::Done);
    EXPECT_EQ(parts->blocks[0], *block_of(1000, i));
  }
}

void send_small_ones(Mesh& mesh) {
  for (uint64_t i = 0; i < 1000; ++i) {
    const auto block = block_of(1000, i);
    mesh.send(0, {.run = 1, .channel = 1, .sequence = i}, {Bytes(*block)}, block);
  }
}

TEST(MeshMemory, AnotherProcessIsReadAndLostWhenItIsKilledMidway) {
  const MeshOptions options = slow_job();
  Child child(options, [](Mesh& mesh) {
    send_small_ones(mesh);
    const auto large = std::make_shared<Block>(kLarge);
    mesh.send(0, {.run = 1}, {Bytes(*large)}, large)->wait(soon());
  });
  Loss loss;
  const auto mesh = Mesh::connect(options);
  mesh->start(loss.handlers());
  wait_for_memory(*mesh);
  std::atomic<bool> has_begun = false;
  const auto parts = std::make_shared<Parts>();
  const auto receive = mesh->receive(1, {.run = 1}, [&, place = into(parts)](const auto& sizes) {
    has_begun = true;
    has_begun.notify_all();
    return place(sizes);
  });
  has_begun.wait(false);
  child.end();
  EXPECT_EQ(receive->wait(soon()), Transfer::Result::Closed);
  EXPECT_EQ(loss.why(), "closed the connection");
}

TEST(MeshMemory, AReaderThatIsKilledMidwayLeavesTheMemoryFree) {
  const MeshOptions options = slow_job();
  Child child(options, [](Mesh& mesh) {
    const auto parts = std::make_shared<Parts>();
    for (uint64_t i = 0; mesh.traffic().received_by_memory == 0; ++i)
      mesh.receive(0, {.run = 1, .channel = 1, .sequence = i}, into(parts))->wait(soon());
    mesh.receive(0, {.run = 1}, [&mesh, place = into(parts)](const auto& sizes) {
      mesh.tell(0, "begun");
      return place(sizes);
    });
    mesh.tell(0, "posted");
    while (true) pause();
  });
  const auto mesh = Mesh::connect(options);
  std::atomic<int> notes = 0;
  mesh->start({.note =
                   [&](int, const std::string&) {
                     ++notes;
                     notes.notify_all();
                   },
               .lost = [](int, const std::string&) {}});
  for (uint64_t i = 0; notes == 0; ++i) {
    const auto block = block_of(1000, i);
    mesh->send(1, {.run = 1, .channel = 1, .sequence = i}, {Bytes(*block)}, block)
        ->wait(soon(milliseconds(10)));
  }
  auto large = std::make_shared<Block>(kLarge);
  const std::weak_ptr<Block> kept = large;
  const Bytes bytes(*large);
  const auto send = mesh->send(1, {.run = 1}, {bytes}, std::move(large));
  notes.wait(1);
  EXPECT_FALSE(kept.expired());
  child.end();
  EXPECT_EQ(send->wait(soon()), Transfer::Result::Closed);
  for (int i = 0; i < 1000 && !kept.expired(); ++i) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_TRUE(kept.expired());
}

// ---- a rank that is written by hand

TEST(MeshMemory, AWrongNonceMeansTheConnection) {
  Puppet rank;
  ProcessCard card = own_card(rank.nonce());
  card.nonce += 1;
  rank.write({.kind = FrameKind::Process}, to_wire(card));
  rank.write({.kind = FrameKind::Look});
  EXPECT_EQ(rank.read_kind(), FrameKind::Process);
  EXPECT_EQ(rank.read_kind(), FrameKind::Look);
  // Neither read nor asked whether it reads: what comes next are sizes.
  const auto block = block_of(100, 1);
  rank.mesh().send(1, {.run = 1}, {Bytes(*block)}, block);
  rank.write({.kind = FrameKind::Posted, .tag = {.run = 1}});
  EXPECT_EQ(rank.read_kind(), FrameKind::Sizes);
  EXPECT_EQ(rank.read_kind(), FrameKind::Piece);
  const auto parts = std::make_shared<Parts>();
  rank.mesh().receive(1, {.run = 1}, into(parts));
  const Seal seal;
  rank.offer({.run = 1}, seal, *block);
  EXPECT_EQ(rank.loss(), "offered memory that this rank does not read");
}

TEST(MeshMemory, AnotherHostIsNotLookedAt) {
  Puppet rank;
  ProcessCard card = own_card(rank.nonce());
  card.host = "another one";
  rank.write({.kind = FrameKind::Process}, to_wire(card));
  rank.write({.kind = FrameKind::Look});
  EXPECT_EQ(rank.read_kind(), FrameKind::Process);
  rank.mesh().tell(1, "next");
  EXPECT_EQ(rank.read_kind(), FrameKind::Note);
}

TEST(MeshMemory, WhatCannotBeReadComesOverTheConnection) {
  Puppet rank;
  rank.be_read();
  const auto parts = std::make_shared<Parts>();
  const auto receive = rank.mesh().receive(1, {.run = 1}, into(parts));
  ASSERT_EQ(rank.read_kind(), FrameKind::Posted);
  const Seal seal;
  const auto block = block_of(5000, 1);
  Offer offer{.seal_address = seal.address(), .seal = seal.value()};
  offer.sizes = {3000, kAbsent, 2000};
  // The second part is nowhere.
  offer.addresses = {reinterpret_cast<uint64_t>(block->data()), 0, 8};
  rank.offer({.run = 1}, offer);
  EXPECT_EQ(rank.read_kind(), FrameKind::Refused);
  EXPECT_FALSE(receive->is_done());
  EXPECT_EQ(rank.mesh().traffic().received, 0);
  rank.write({.kind = FrameKind::Piece, .tag = {.run = 1}},
             {reinterpret_cast<const char*>(block->data()), 5000});
  ASSERT_EQ(receive->wait(soon()), Transfer::Result::Done);
  EXPECT_TRUE(std::ranges::equal(parts->blocks[0], Bytes(*block).first(3000)));
  EXPECT_TRUE(std::ranges::equal(parts->blocks[2], Bytes(*block).last(2000)));
  EXPECT_EQ(rank.mesh().traffic().received, 5000);
  EXPECT_EQ(rank.mesh().traffic().received_by_memory, 0);
}

TEST(MeshMemory, BytesUnderABrokenSealAreNoMessage) {
  Puppet rank;
  rank.be_read();
  const auto parts = std::make_shared<Parts>();
  const auto receive = rank.mesh().receive(1, {.run = 1}, into(parts));
  ASSERT_EQ(rank.read_kind(), FrameKind::Posted);
  const auto block = block_of(5000, 1);
  std::optional<Seal> seal(std::in_place);
  Offer offer{.seal_address = seal->address(), .seal = seal->value()};
  offer.sizes = {block->size()};
  offer.addresses = {reinterpret_cast<uint64_t>(block->data())};
  seal->break_now();
  rank.offer({.run = 1}, offer);
  EXPECT_EQ(rank.read_kind(), FrameKind::Refused);
  EXPECT_FALSE(receive->is_done());
  rank.mesh().close_run(1);
  EXPECT_EQ(receive->wait(soon()), Transfer::Result::Closed);
  // For a run that is closed here nothing is read; the sender may go on.
  rank.offer({.run = 1, .sequence = 2}, offer);
  EXPECT_EQ(rank.read_kind(), FrameKind::Taken);
}

TEST(MeshMemory, ARefusedOfferIsSentInPiecesAndNoOtherIsMade) {
  Puppet rank;
  rank.be_read();
  rank.write({.kind = FrameKind::Reads});
  const auto block = block_of(1500, 1);
  const auto send = rank.mesh().send(1, {.run = 1}, {Bytes(*block), {}}, block);
  const Offer offer = rank.be_offered({.run = 1});
  EXPECT_EQ(offer.sizes, (std::vector<uint64_t>{1500, kAbsent}));
  EXPECT_EQ(offer.addresses[0], reinterpret_cast<uint64_t>(block->data()));
  EXPECT_FALSE(send->is_done());
  rank.write({.kind = FrameKind::Refused, .tag = {.run = 1}});
  const auto [first, first_bytes] = rank.read();
  const auto [second, second_bytes] = rank.read();
  EXPECT_EQ(first.kind, FrameKind::Piece);
  EXPECT_EQ(second.kind, FrameKind::Piece);
  const std::string bytes = first_bytes + second_bytes;
  EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(bytes)), *block));
  EXPECT_EQ(send->wait(soon()), Transfer::Result::Done);
  rank.mesh().send(1, {.run = 1, .sequence = 2}, {Bytes(*block)}, block);
  rank.write({.kind = FrameKind::Posted, .tag = {.run = 1, .sequence = 2}});
  EXPECT_EQ(rank.read_kind(), FrameKind::Sizes);
}

TEST(MeshMemory, AClosedRunBreaksTheSealAndKeepsTheMemoryUntilTheAnswer) {
  for (const FrameKind answer : {FrameKind::Taken, FrameKind::Refused}) {
    Puppet rank;
    rank.be_read();
    rank.write({.kind = FrameKind::Reads});
    auto block = block_of(5000, 1);
    const std::weak_ptr<Block> kept = block;
    const Bytes bytes(*block);
    const auto send = rank.mesh().send(1, {.run = 1}, {bytes}, std::move(block));
    const Offer offer = rank.be_offered({.run = 1});
    const RemoteMemory memory(getpid());
    EXPECT_TRUE(memory.holds(offer.seal_address, offer.seal));
    rank.mesh().close_run(1);
    EXPECT_EQ(send->wait(soon()), Transfer::Result::Closed);
    EXPECT_FALSE(memory.holds(offer.seal_address, offer.seal));
    EXPECT_FALSE(kept.expired());
    rank.write({.kind = answer, .tag = {.run = 1}});
    for (int i = 0; i < 1000 && !kept.expired(); ++i) std::this_thread::sleep_for(milliseconds(1));
    EXPECT_TRUE(kept.expired());
    // And nothing is sent for it.
    rank.mesh().tell(1, "next");
    EXPECT_EQ(rank.read_kind(), FrameKind::Note);
  }
}

TEST(MeshMemory, FramesThatMakeNoSenseEndTheConnection) {
  const Seal seal;
  const Block block(5000);
  const Block large(kLarge);
  const auto loss_after = [](const auto& say) {
    Puppet rank;
    rank.be_read();
    const auto parts = std::make_shared<Parts>();
    rank.mesh().receive(1, {.run = 1}, into(parts));
    EXPECT_EQ(rank.read_kind(), FrameKind::Posted);
    say(rank);
    return rank.loss();
  };
  EXPECT_EQ(loss_after([](Puppet& rank) {
              rank.write({.kind = FrameKind::Offer, .tag = {.run = 1}}, "what is this");
            }),
            "a message between ranks is too short");
  EXPECT_EQ(
      loss_after([](Puppet& rank) { rank.write({.kind = FrameKind::Offer, .tag = {.run = 1}}); }),
      "a message between ranks is too short");
  EXPECT_EQ(loss_after([](Puppet& rank) {
              rank.offer({.run = 1}, Offer{.sizes = {1, 2}, .addresses = {8}});
            }),
            "sent an offer of parts without addresses");
  EXPECT_EQ(loss_after([](Puppet& rank) { rank.write({.kind = FrameKind::Process}, "who am I"); }),
            "a message between ranks is too short");
  EXPECT_EQ(loss_after([&](Puppet& rank) { rank.offer({.run = 1, .sequence = 9}, seal, block); }),
            "sent a message that nobody waits for");
  EXPECT_EQ(loss_after([&](Puppet& rank) {
              rank.offer({.run = 1}, seal, large);
              rank.offer({.run = 1}, seal, block);
            }),
            "sent a message twice");
  EXPECT_EQ(loss_after([&](Puppet& rank) {
              rank.offer({.run = 1}, seal, large);
              rank.write({.kind = FrameKind::Piece, .tag = {.run = 1}}, "x");
            }),
            "sent a piece that does not belong to its message");
  EXPECT_EQ(
      loss_after([](Puppet& rank) { rank.write({.kind = FrameKind::Taken, .tag = {.run = 1}}); }),
      "answered an offer that was not made");
}

}  // namespace
}  // namespace penstock::net
