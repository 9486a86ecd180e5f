// Messages between ranks of one host through shared memory, and those that both ranks copy. Rank 1
// is another process, or a test that writes frames by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <optional>
#include <thread>

#include "penstock/net/incoming_copies.h"
#include "penstock/net/testing_nodes.h"
#include "penstock/net/testing_puppet.h"

namespace penstock::net {
namespace {

using namespace testing_nodes;
using std::chrono::milliseconds;

std::string_view as_text(const Block& block) { return text_of(Bytes(block)); }

// ---- short messages

TEST(MeshRing, AShortMessageIsOneFrameInSharedMemory) {
  Puppet rank({.same_host_bytes = 1000});
  rank.be_linked();
  const auto block = block_of(600, 1);
  const auto send = rank.mesh().send(
      1, {.run = 1}, {Bytes(*block).first(100), {}, Bytes(*block).subspan(100)}, block);
  EXPECT_FALSE(send->is_done());
  rank.put({.kind = FrameKind::Posted, .tag = {.run = 1}});
  const auto [header, text] = rank.take();
  EXPECT_EQ(header.kind, FrameKind::Whole);
  EXPECT_EQ(header.tag, (Tag{.run = 1}));
  ASSERT_EQ(header.lane, 3u);
  const std::array<uint64_t, 3> sizes = {100, kAbsent, 500};
  EXPECT_EQ(text.substr(0, sizeof sizes), text_of(std::as_bytes(std::span(sizes))));
  EXPECT_EQ(text.substr(sizeof sizes), as_text(*block));
  EXPECT_EQ(send->wait(soon()), Transfer::Result::Done);
  EXPECT_EQ(rank.mesh().traffic().sent_by_memory, 600);
}

TEST(MeshRing, WhatHasNoRoomGoesOverTheConnection) {
  Puppet rank({.piece_bytes = 1 << 20, .same_host_bytes = 1 << 20});
  rank.be_linked();
  const auto block = block_of(FrameRing::kBytes / 5, 1);
  std::vector<std::shared_ptr<Transfer>> sent;
  for (uint64_t i = 0; i < 5; ++i) {
    rank.put({.kind = FrameKind::Posted, .tag = {.run = 1, .sequence = i}});
    sent.push_back(rank.mesh().send(1, {.run = 1, .sequence = i}, {Bytes(*block)}, block));
  }
  // Nobody reads the shared memory: the fifth has no room there.
  while (true) {
    const auto [header, text] = rank.read();
    if (header.kind == FrameKind::Bell) continue;
    EXPECT_EQ(header.kind, FrameKind::Sizes);
    break;
  }
  const auto [piece, bytes] = rank.read();
  EXPECT_EQ(piece.kind, FrameKind::Piece);
  EXPECT_EQ(bytes, as_text(*block));
  for (const auto& transfer : sent) EXPECT_EQ(transfer->wait(soon()), Transfer::Result::Done);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(rank.take_kind(), FrameKind::Whole);
  EXPECT_EQ(rank.mesh().traffic().sent, 5 * std::ssize(*block));
  EXPECT_EQ(rank.mesh().traffic().sent_by_memory, 4 * std::ssize(*block));
}

TEST(MeshRing, WhatWasPutBeforeTheGoodbyeCounts) {
  Puppet rank({.same_host_bytes = 1});
  rank.be_linked();
  const auto block = block_of(5000, 1);
  const auto send = rank.mesh().send(1, {.run = 1}, {Bytes(*block)}, block);
  rank.put({.kind = FrameKind::Posted, .tag = {.run = 1}});
  EXPECT_EQ(rank.take_kind(), FrameKind::Offer);
  rank.put_silently({.kind = FrameKind::Taken, .tag = {.run = 1}});
  rank.write({.kind = FrameKind::Bye});
  rank.hang_up();
  EXPECT_EQ(send->wait(soon()), Transfer::Result::Done);
  EXPECT_EQ(rank.loss(), "has ended");
}

TEST(MeshRing, WhatIsPostedAfterTheGoodbyeIsNotSent) {
  Puppet rank({.same_host_bytes = 1000});
  rank.be_linked();
  const auto block = block_of(600, 1);
  const auto send = rank.mesh().send(1, {.run = 1}, {Bytes(*block)}, block);
  std::jthread ends([&rank] { rank.end_mesh(); });
  while (rank.read_kind() != FrameKind::Bye) continue;
  rank.put({.kind = FrameKind::Posted, .tag = {.run = 1}});
  std::this_thread::sleep_for(milliseconds(20));
  rank.hang_up();
  ends.join();
  EXPECT_EQ(send->wait(soon()), Transfer::Result::Closed);
  EXPECT_FALSE(rank.has_frames());
}

// ---- messages that both copy

/// While it watches, this test is the thread that waits: nothing is copied but by its looks.
class MeshRingWatched : public ::testing::Test {
 protected:
  void SetUp() override {
    rank_.be_linked();
    // The bell of this message comes behind the last frame of be_linked(): that has been read, too.
    const Tag first{.run = 1, .sequence = 1};
    const auto receive = rank_.mesh().receive(1, first, into(std::make_shared<Parts>()));
    EXPECT_EQ(rank_.take_kind(), FrameKind::Posted);
    rank_.put({.kind = FrameKind::Whole, .tag = first});
    for (const auto deadline = soon(); !receive->is_done();) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      std::this_thread::yield();
    }
    // From now on the mesh's thread is not woken.
    look_until([this] { return rank_.mesh().begin_watch(); });
  }
  template <class Done>
  void look_until(const Done& done) {
    for (const auto deadline = soon(); !done();) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      rank_.mesh().look();
    }
  }

  Puppet rank_{{.piece_bytes = 2000, .same_host_bytes = 1}};
};

/// A message of which rank 0 copies pieces of 1000 bytes while this test gives others.
class MeshRingShared : public MeshRingWatched {
 protected:
  static constexpr size_t kBytes = 24 << 20;

  void SetUp() override {
    MeshRingWatched::SetUp();
    receive_ = rank_.mesh().receive(1, {.run = 1}, into(parts_));
    ASSERT_EQ(rank_.take_kind(), FrameKind::Posted);
    Offer offer{.seal_address = seal_.address(), .seal = seal_.value()};
    offer.sizes = {block_->size()};
    offer.addresses = {reinterpret_cast<uint64_t>(block_->data())};
    rank_.put({.kind = FrameKind::Offer, .tag = {.run = 1}}, to_wire(offer));
    look_until([this] { return rank_.has_frames(); });
    const auto [header, text] = rank_.take();
    ASSERT_EQ(header.kind, FrameKind::Into);
    places_ = from_wire<IntoPlaces>(text);
    ASSERT_EQ(places_.addresses.size(), 1u);
    const auto begin = claims().claim(static_cast<uint16_t>(places_.use), kPiece, kBytes);
    ASSERT_TRUE(begin);
    begin_ = *begin;
    rank_.mesh().end_watch(/*sleeps=*/false);
  }

  static constexpr uint64_t kPiece = 4000;

  SharedClaims& claims() { return rank_.claims_out(places_.slot); }
  /// Writes the claimed piece into the memory of rank 0, which is this process.
  void give() {
    std::memcpy(reinterpret_cast<std::byte*>(places_.addresses[0]) + begin_,
                block_->data() + begin_, std::min(kPiece, kBytes - begin_));
  }
  void say_given(uint8_t failed = 0) {
    rank_.put({.kind = FrameKind::Given, .tag = {.run = 1}},
              to_wire(GivenBytes{.bytes = std::min(kPiece, kBytes - begin_), .failed = failed}));
  }
  void wait_until_all_is_claimed() {
    while (claims().claim(static_cast<uint16_t>(places_.use), 0, kBytes)) std::this_thread::yield();
  }

  Seal seal_;
  std::shared_ptr<Block> block_ = block_of(kBytes, 1);
  std::shared_ptr<Parts> parts_ = std::make_shared<Parts>();
  std::shared_ptr<Transfer> receive_;
  IntoPlaces places_;
  uint64_t begin_ = 0;
};

TEST_F(MeshRingShared, TheMessageIsThereWhenTheSenderHasSaidSo) {
  wait_until_all_is_claimed();
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_FALSE(receive_->is_done());
  give();
  say_given();
  ASSERT_EQ(receive_->wait(soon()), Transfer::Result::Done);
  EXPECT_EQ(parts_->blocks[0], *block_);
  EXPECT_EQ(rank_.take_kind(), FrameKind::Taken);
  EXPECT_EQ(rank_.mesh().traffic().received_by_memory, static_cast<int64_t>(kBytes));
}

TEST_F(MeshRingShared, WhatTheSenderCouldNotWriteComesOverTheConnection) {
  say_given(/*failed=*/1);
  EXPECT_EQ(rank_.take_kind(), FrameKind::Refused);
  EXPECT_FALSE(receive_->is_done());
  // In pieces, from the beginning.
  for (size_t at = 0; at < kBytes; at += 1 << 20) {
    const size_t bytes = std::min<size_t>(1 << 20, kBytes - at);
    rank_.write({.kind = FrameKind::Piece, .tag = {.run = 1}}, as_text(*block_).substr(at, bytes));
  }
  ASSERT_EQ(receive_->wait(soon()), Transfer::Result::Done);
  EXPECT_EQ(parts_->blocks[0], *block_);
  EXPECT_EQ(rank_.mesh().traffic().received_by_memory, 0);
}

TEST_F(MeshRingShared, AClosedRunHoldsTheMemoryUntilTheSenderHasWritten) {
  const std::weak_ptr<Parts> held = parts_;
  parts_.reset();
  rank_.mesh().close_run(1);
  EXPECT_EQ(receive_->wait(soon()), Transfer::Result::Closed);
  EXPECT_FALSE(claims().claim(static_cast<uint16_t>(places_.use), kPiece, kBytes));
  std::this_thread::sleep_for(milliseconds(20));
  ASSERT_FALSE(held.expired());
  give();
  say_given();
  EXPECT_EQ(rank_.take_kind(), FrameKind::Taken);
  for (int i = 0; i < 1000 && !held.expired(); ++i) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_TRUE(held.expired());
}

TEST_F(MeshRingShared, ALostRankMayStillWriteWhatItHasClaimed) {
  const std::weak_ptr<Parts> held = parts_;
  parts_.reset();
  rank_.hang_up();
  EXPECT_EQ(receive_->wait(soon()), Transfer::Result::Closed);
  EXPECT_EQ(rank_.loss(), "closed the connection");
  std::this_thread::sleep_for(milliseconds(20));
  ASSERT_FALSE(held.expired());
  give();
}

TEST_F(MeshRingShared, AnotherMessageHasClaimsOfItsOwn) {
  give();
  say_given();
  ASSERT_EQ(receive_->wait(soon()), Transfer::Result::Done);
  EXPECT_EQ(rank_.take_kind(), FrameKind::Taken);
  const IntoPlaces before = places_;
  const auto parts = std::make_shared<Parts>();
  const auto receive = rank_.mesh().receive(1, {.run = 1, .sequence = 1}, into(parts));
  ASSERT_EQ(rank_.take_kind(), FrameKind::Posted);
  Offer offer{.seal_address = seal_.address(), .seal = seal_.value(), .sizes = {kBytes}};
  offer.addresses = {reinterpret_cast<uint64_t>(block_->data())};
  rank_.put({.kind = FrameKind::Offer, .tag = {.run = 1, .sequence = 1}}, to_wire(offer));
  const auto [header, text] = rank_.take();
  ASSERT_EQ(header.kind, FrameKind::Into);
  const auto after = from_wire<IntoPlaces>(text);
  EXPECT_EQ(after.slot, before.slot);
  EXPECT_NE(after.use, before.use);
  EXPECT_FALSE(claims().claim(static_cast<uint16_t>(before.use), kPiece, kBytes));
  ASSERT_EQ(receive->wait(soon()), Transfer::Result::Done);
  EXPECT_EQ(parts->blocks[0], *block_);
}

TEST_F(MeshRingShared, AFailureAfterClaimsThatWereSetBackEndsTheConnection) {
  claims().begin(static_cast<uint16_t>(places_.use));
  say_given(/*failed=*/1);
  EXPECT_EQ(rank_.loss(), kClaimedTwice);
  EXPECT_EQ(receive_->wait(soon()), Transfer::Result::Closed);
}

/// The looks of this test copy one piece at a time.
class MeshRingStepwise : public MeshRingWatched {
 protected:
  static constexpr uint64_t kBytes = 1'000'000;

  void TearDown() override { rank_.mesh().end_watch(/*sleeps=*/false); }

  static bool has_ended(Transfer& transfer) {
    return transfer.wait(std::chrono::steady_clock::now()) != Transfer::Result::TimedOut;
  }
  /// Sets them back as soon as something has been copied.
  void set_back(SharedClaims& claims, uint16_t use) {
    look_until([&] { return claims.claim(use, 0, kBytes) > 0; });
    claims.begin(use);
  }
  /// Lets rank 0 offer a message to be written to `into`.
  std::shared_ptr<Transfer> be_offered() {
    const auto send = rank_.mesh().send(1, {.run = 1}, {Bytes(*block_)}, block_);
    rank_.put({.kind = FrameKind::Posted, .tag = {.run = 1}});
    look_until([this] { return rank_.has_frames(); });
    EXPECT_EQ(rank_.take_kind(), FrameKind::Offer);
    return send;
  }
  void say_into(Block& into) {
    rank_.put({.kind = FrameKind::Into, .tag = {.run = 1}},
              to_wire(IntoPlaces{
                  .slot = 2, .use = 5, .addresses = {reinterpret_cast<uint64_t>(into.data())}}));
  }

  std::shared_ptr<Block> block_ = block_of(kBytes, 1);
};

TEST_F(MeshRingStepwise, AReceiverDoesNotBelieveClaimsThatWereSetBack) {
  const auto parts = std::make_shared<Parts>();
  const auto receive = rank_.mesh().receive(1, {.run = 1}, into(parts));
  EXPECT_EQ(rank_.take_kind(), FrameKind::Posted);
  const Seal seal;
  Offer offer{.seal_address = seal.address(), .seal = seal.value(), .sizes = {kBytes}};
  offer.addresses = {reinterpret_cast<uint64_t>(block_->data())};
  rank_.put({.kind = FrameKind::Offer, .tag = {.run = 1}}, to_wire(offer));
  look_until([this] { return rank_.has_frames(); });
  const auto [header, text] = rank_.take();
  ASSERT_EQ(header.kind, FrameKind::Into);
  const auto places = from_wire<IntoPlaces>(text);
  set_back(rank_.claims_out(places.slot), static_cast<uint16_t>(places.use));
  look_until([&] { return has_ended(*receive); });
  EXPECT_EQ(receive->wait(soon()), Transfer::Result::Closed);
  EXPECT_EQ(rank_.loss(), kClaimedTwice);
}

TEST_F(MeshRingStepwise, ASenderDoesNotBelieveClaimsThatWereSetBack) {
  const auto send = be_offered();
  Block into(kBytes);
  rank_.claims_in(2).begin(5);
  say_into(into);
  set_back(rank_.claims_in(2), 5);
  look_until([&] { return has_ended(*send); });
  EXPECT_EQ(send->wait(soon()), Transfer::Result::Closed);
  EXPECT_EQ(rank_.loss(), kClaimedTwice);
}

TEST_F(MeshRingStepwise, PlacesAreNamedOnce) {
  const auto send = be_offered();
  Block into(kBytes);
  say_into(into);
  say_into(into);
  look_until([&] { return has_ended(*send); });
  EXPECT_EQ(send->wait(soon()), Transfer::Result::Closed);
  EXPECT_EQ(rank_.loss(), "names the places of a message again");
}

TEST(MeshRing, ASenderThatWaitsWritesWhatTheReceiverHasNotClaimed) {
  if (!have_cores()) GTEST_SKIP() << "nobody waits awake here";
  Puppet rank({.piece_bytes = 100'000, .same_host_bytes = 1});
  rank.be_linked();
  const auto block = block_of(1'000'000, 1);
  const auto send = rank.mesh().send(
      1, {.run = 1}, {Bytes(*block).first(333'333), Bytes(*block).subspan(333'333)}, block);
  rank.put({.kind = FrameKind::Posted, .tag = {.run = 1}});
  ASSERT_EQ(rank.take_kind(), FrameKind::Offer);
  Block into(block->size());
  const Memory memory(into);
  SharedClaims& claims = rank.claims_in(2);
  claims.begin(5);
  const auto first = claims.claim(5, 50'000, into.size());
  ASSERT_EQ(first, 0u);
  IntoPlaces places{.slot = 2, .use = 5};
  places.addresses = {reinterpret_cast<uint64_t>(memory.data()),
                      reinterpret_cast<uint64_t>(memory.data() + 333'333)};
  rank.put({.kind = FrameKind::Into, .tag = {.run = 1}}, to_wire(places));
  std::jthread waits([&] { EXPECT_EQ(send->wait(soon()), Transfer::Result::Done); });
  uint64_t given = 0;
  while (given < into.size() - 50'000) {
    // Who waits is awake for a moment only, and again after each sign that it is not forgotten.
    const auto [header, text] = rank.take();
    ASSERT_EQ(header.kind, FrameKind::Given);
    const auto bytes = from_wire<GivenBytes>(text);
    EXPECT_EQ(bytes.failed, 0);
    given += bytes.bytes;
  }
  EXPECT_TRUE(std::ranges::equal(memory.subspan(50'000), Bytes(*block).subspan(50'000)));
  EXPECT_EQ(into[0], std::byte{});
  rank.put({.kind = FrameKind::Taken, .tag = {.run = 1}});
}

// ---- memory in one direction only

/// While it lives, the system gives this process no shared memory.
class NoSharedMemory {
 public:
  NoSharedMemory() : before_(signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &limit_), 0);
    const rlimit none{.rlim_cur = 0, .rlim_max = limit_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
  }
  ~NoSharedMemory() {
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit_), 0);
    EXPECT_NE(signal(SIGXFSZ, before_), SIG_ERR);
  }
  NoSharedMemory(const NoSharedMemory&) = delete;
  NoSharedMemory& operator=(const NoSharedMemory&) = delete;

 private:
  sighandler_t before_;
  rlimit limit_ = {};
};

TEST(MeshRing, WithoutMemoryOfItsOwnARankCopiesAlone) {
  auto none = std::make_optional<NoSharedMemory>();
  Puppet rank;
  const ProcessCard card = rank.read_card();
  none.reset();
  ASSERT_EQ(card.ring, -1);
  rank.be_linked(card);
  const auto parts = std::make_shared<Parts>();
  const auto receive = rank.mesh().receive(1, {.run = 1}, into(parts));
  EXPECT_EQ(rank.take_kind(), FrameKind::Posted);
  const Seal seal;
  const auto block = block_of(300'000, 1);
  rank.offer({.run = 1}, seal, *block);
  ASSERT_EQ(receive->wait(soon()), Transfer::Result::Done);
  EXPECT_EQ(parts->blocks[0], *block);
  // No Into before: the sender is not asked to help.
  EXPECT_EQ(rank.take_kind(), FrameKind::Taken);
  EXPECT_EQ(rank.mesh().traffic().received_by_memory, 300'000);
}

TEST(MeshRing, WithoutThePeersMemoryASenderDoesNotHelp) {
  Puppet rank;
  rank.be_linked(rank.read_card(), /*makes_ring=*/false);
  const auto block = block_of(300'000, 1);
  const auto send = rank.mesh().send(1, {.run = 1}, {Bytes(*block)}, block);
  rank.be_offered({.run = 1});
  Block into(block->size());
  rank.put({.kind = FrameKind::Into, .tag = {.run = 1}},
           to_wire(IntoPlaces{.use = 1, .addresses = {reinterpret_cast<uint64_t>(into.data())}}));
  rank.put({.kind = FrameKind::Taken, .tag = {.run = 1}});
  EXPECT_EQ(send->wait(soon()), Transfer::Result::Done);
  EXPECT_EQ(into, Block(block->size()));
}

// ---- what makes no sense

TEST(MeshRing, FramesThatMakeNoSenseEndTheConnection) {
  const auto loss_after = [](const auto& say) {
    Puppet rank;
    rank.be_linked();
    const auto parts = std::make_shared<Parts>();
    rank.mesh().receive(1, {.run = 1}, into(parts));
    EXPECT_EQ(rank.take_kind(), FrameKind::Posted);
    say(rank);
    return rank.loss();
  };
  const Tag tag{.run = 1};
  EXPECT_EQ(loss_after([&](Puppet& rank) { rank.put({.kind = FrameKind::Bye}); }),
            "sent a frame of an unknown kind");
  EXPECT_EQ(loss_after([&](Puppet& rank) {
              rank.put({.kind = FrameKind::Whole, .lane = 3, .tag = tag}, "sizes");
            }),
            "sent a short message without its sizes");
  for (const uint64_t size : {uint64_t{3}, uint64_t{5}, UINT64_MAX - 1}) {
    EXPECT_EQ(loss_after([&](Puppet& rank) {
                rank.put({.kind = FrameKind::Whole, .lane = 1, .tag = tag},
                         std::string(reinterpret_cast<const char*>(&size), 8) + "four");
              }),
              "sent a short message of another size than it says");
  }
  EXPECT_EQ(loss_after([&](Puppet& rank) {
              rank.put({.kind = FrameKind::Whole, .tag = {.run = 1, .sequence = 7}});
            }),
            "sent a message that nobody waits for");
  EXPECT_EQ(loss_after([&](Puppet& rank) {
              rank.put({.kind = FrameKind::Given, .tag = tag}, to_wire(GivenBytes{.bytes = 1}));
            }),
            "says that it has written what was not to be written");
  EXPECT_EQ(loss_after([&](Puppet& rank) {
              const auto block = block_of(300'000, 1);
              rank.mesh().send(1, tag, {Bytes(*block)}, block);
              rank.put({.kind = FrameKind::Posted, .tag = tag});
              EXPECT_EQ(rank.take_kind(), FrameKind::Offer);
              rank.put({.kind = FrameKind::Into, .tag = tag},
                       to_wire(IntoPlaces{.slot = RingHead::kClaims, .addresses = {1}}));
            }),
            "wants a message to be written to places that it does not name");
}

// ---- two processes

/// Sends and receives messages of many sizes at once, in both directions, by several threads.
class Exchange {
 public:
  static constexpr int kThreads = 2;
  static constexpr uint64_t kMessages = 60;

  Exchange(Mesh& mesh, uint32_t run) : mesh_(mesh), run_(run) {}

  /// Whether all that came was right.
  bool is_right() {
    std::atomic<bool> right = true;
    {
      std::vector<std::jthread> threads;
      for (uint32_t t = 0; t < kThreads; ++t)
        threads.emplace_back([this, t, &right] { right = send_and_receive(t) && right; });
    }
    return right;
  }

 private:
  static size_t size_of(uint64_t seed) {
    Rng rng(seed);
    const std::array<size_t, 5> sizes = {rng.below(64), rng.below(5000), 60'000 + rng.below(10'000),
                                         rng.below(1 << 20), rng.below(6 << 20)};
    return sizes[rng.below(sizes.size())];
  }
  /// Cheaper than block_of(), and different at every place.
  static std::shared_ptr<Block> bytes_of(uint64_t seed) {
    auto block = std::make_shared<Block>(size_of(seed));
    for (size_t i = 0; i < block->size(); ++i)
      (*block)[i] = static_cast<std::byte>((i ^ (i >> 8) ^ (i >> 16)) + seed);
    return block;
  }

  bool send_and_receive(uint32_t thread) {
    const int peer = 1 - mesh_.rank();
    Rng rng(static_cast<uint64_t>(mesh_.rank()) * 100 + thread);
    for (uint64_t i = 0; i < kMessages; ++i) {
      const Tag tag{.run = run_, .channel = thread, .sequence = i};
      const auto own = bytes_of(seed_of(mesh_.rank(), tag));
      const auto parts = std::make_shared<Parts>();
      const auto receive = mesh_.receive(peer, tag, into(parts));
      if (rng.below(8) == 0) std::this_thread::sleep_for(milliseconds(1));
      const size_t cut = rng.below(own->size() + 1);
      const auto send =
          mesh_.send(peer, tag, {Bytes(*own).first(cut), Bytes(*own).subspan(cut)}, own);
      const bool send_first = rng.below(2) == 0;
      if ((send_first ? send : receive)->wait(soon()) != Transfer::Result::Done) return false;
      if ((send_first ? receive : send)->wait(soon()) != Transfer::Result::Done) return false;
      Block all = parts->blocks[0];
      all.insert(all.end(), parts->blocks[1].begin(), parts->blocks[1].end());
      if (all != *bytes_of(seed_of(peer, tag))) return false;
    }
    return true;
  }
  static uint64_t seed_of(int rank, const Tag& tag) {
    return static_cast<uint64_t>(rank) * 1'000'000 + tag.channel * 1000 + tag.sequence;
  }

  Mesh& mesh_;
  uint32_t run_;
};

TEST(MeshRing, MessagesOfAllSizesCrossInBothDirectionsAtOnce) {
  const MeshOptions options{.ranks = 2, .port = free_port()};
  Child child(options,
              [](Mesh& mesh) { mesh.tell(0, Exchange(mesh, 1).is_right() ? "right" : "wrong"); });
  const auto mesh = Mesh::connect(options);
  std::string verdict;
  Mutex mutex;
  CondVar changed;
  mesh->start({.note =
                   [&](int, std::string note) {
                     const MutexLock lock(mutex);
                     verdict = std::move(note);
                     changed.notify_all();
                   },
               .lost = [](int, const std::string&) {}});
  EXPECT_TRUE(Exchange(*mesh, 1).is_right());
  const MutexLock lock(mutex);
  changed.wait_until(mutex, soon(), [&] { return !verdict.empty(); });
  EXPECT_EQ(verdict, "right");
  EXPECT_GT(mesh->traffic().sent_by_memory, mesh->traffic().sent / 2);
}

TEST(MeshRing, APeerThatIsKilledWhileBothCopyIsLostAtOnce) {
  for (int round = 0; round < 5; ++round) {
    const MeshOptions options{.ranks = 2, .port = free_port()};
    Child child(options, [](Mesh& mesh) {
      const auto block = std::make_shared<Block>(2 << 20);
      for (uint64_t i = 0;; ++i)
        mesh.send(0, {.run = 1, .sequence = i}, {Bytes(*block)}, block)->wait(soon());
    });
    Loss loss;
    const auto mesh = Mesh::connect(options);
    mesh->start(loss.handlers());
    std::jthread killer([&child, round] {
      std::this_thread::sleep_for(milliseconds(20 + 7 * round));
      child.end();
    });
    auto result = Transfer::Result::Done;
    for (uint64_t i = 0; result == Transfer::Result::Done; ++i) {
      const auto parts = std::make_shared<Parts>();
      result = mesh->receive(1, {.run = 1, .sequence = i}, into(parts))->wait(soon());
    }
    EXPECT_EQ(result, Transfer::Result::Closed);
    EXPECT_EQ(loss.why(), "closed the connection");
  }
}

}  // namespace
}  // namespace penstock::net
