// Frames through shared memory: bytes and order, no room, what is no frame, who has to be woken,
// and the claims of two that copy one message.
#include "penstock/net/frame_ring.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "penstock/util/numbers/rng.h"

namespace penstock::net {
namespace {

/// A ring, with its writer in another mapping of it, as another process has one.
struct Ends {
  Ends() : Ends(FrameRing::make()) {}
  explicit Ends(FrameRing ring)
      : writer(FrameRing::map(getpid(), ring.descriptor())), reader(std::move(ring)) {}

  bool put(const Tag& tag, Bytes bytes) {
    const std::array<Bytes, 1> parts = {bytes};
    return writer.put({.kind = FrameKind::Whole, .tag = tag}, {parts});
  }

  /// Whether the reader is to be woken for a frame with that tag.
  bool rings_with(const Tag& tag) {
    EXPECT_TRUE(put(tag, {}));
    return writer.has_to_ring();
  }

  RingWriter writer;
  RingReader reader;
};

std::vector<std::byte> random_bytes(Rng& rng, size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.below(256));
  return bytes;
}

TEST(FrameRing, BringsFramesOfAllLengthsInTheirOrder) {
  Ends ends;
  ASSERT_TRUE(ends.writer.is_open());
  Rng rng(1);
  std::vector<std::vector<std::byte>> put;
  size_t got = 0;
  size_t bytes = 0;
  // Several times around, so that frames lie across its end.
  while (bytes < 5 * FrameRing::kBytes) {
    const size_t length = rng.below(2) == 0 ? rng.below(50) : rng.below(FrameRing::kBytes / 3);
    put.push_back(random_bytes(rng, length));
    ASSERT_TRUE(ends.put({.run = 7, .sequence = put.size()}, put.back()));
    bytes += length;
    if (rng.below(2) == 0 && ends.writer.has_room(FrameRing::kBytes / 3)) continue;
    ends.reader.read([&](const FrameHeader& header, Bytes behind) {
      ASSERT_LT(got, put.size());
      EXPECT_EQ(header.tag, (Tag{.run = 7, .sequence = got + 1}));
      EXPECT_TRUE(std::ranges::equal(behind, put[got]));
      ++got;
    });
    EXPECT_TRUE(ends.reader.is_empty());
  }
}

TEST(FrameRing, PutsNothingWhereThereIsNoRoom) {
  Ends ends;
  const std::vector<std::byte> quarter(FrameRing::kBytes / 4);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(ends.put({}, quarter));
  EXPECT_FALSE(ends.writer.has_room(quarter.size()));
  EXPECT_FALSE(ends.put({}, quarter));
  EXPECT_FALSE(ends.writer.has_room(UINT64_MAX - 10));
  EXPECT_EQ(ends.reader.read([](const FrameHeader&, Bytes) {}), 3u);
  EXPECT_TRUE(ends.put({}, quarter));
}

TEST(FrameRing, WakesOnceAReaderThatDoesNotLook) {
  Ends ends;
  const auto nothing = [](const FrameHeader&, Bytes) {};
  EXPECT_TRUE(ends.rings_with({}));
  EXPECT_FALSE(ends.rings_with({}));
  ends.reader.read(nothing);
  EXPECT_TRUE(ends.rings_with({}));
  ends.reader.read(nothing);
  ends.reader.begin_watch();
  ends.reader.begin_watch();
  EXPECT_FALSE(ends.rings_with({}));
  ends.reader.end_watch();
  EXPECT_FALSE(ends.rings_with({}));
  ends.reader.end_watch();
  EXPECT_FALSE(ends.reader.is_empty());
  EXPECT_TRUE(ends.rings_with({}));
}

TEST(FrameRing, AReaderThatLooksIsWokenOnceIfItIsTooSlow) {
  Ends ends;
  ends.reader.begin_watch();
  EXPECT_FALSE(ends.writer.has_unread());
  EXPECT_FALSE(ends.rings_with({}));
  EXPECT_TRUE(ends.writer.has_unread());
  EXPECT_TRUE(ends.writer.has_to_ring(/*watched=*/true));
  EXPECT_FALSE(ends.writer.has_to_ring(/*watched=*/true));
  ends.reader.read([](const FrameHeader&, Bytes) {});
  EXPECT_FALSE(ends.writer.has_unread());
}

TEST(FrameRing, AFrameThatWakesNobodyLeavesTheBellToTheNext) {
  Ends ends;
  ASSERT_TRUE(ends.put({}, {}));
  EXPECT_TRUE(ends.rings_with({}));
}

TEST(FrameRing, NoFrameIsLostBetweenTwoThreads) {
  Ends ends;
  constexpr uint64_t kFrames = 20'000;
  std::atomic<uint64_t> bells = 0;
  std::jthread writer([&] {
    Rng rng(2);
    for (uint64_t i = 0; i < kFrames;) {
      const std::vector<std::byte> bytes = random_bytes(rng, rng.below(100));
      if (!ends.put({.sequence = i}, bytes)) {
        std::this_thread::yield();
        continue;
      }
      ++i;
      if (!ends.writer.has_to_ring()) continue;
      ++bells;
      bells.notify_all();
    }
  });
  uint64_t next = 0;
  uint64_t heard = 0;
  // Watches for a while, then sleeps until the bell; a frame that nobody is told of hangs the test.
  while (next < kFrames) {
    const auto use = [&](const FrameHeader& header, Bytes) {
      EXPECT_EQ(header.tag.sequence, next++);
    };
    ends.reader.begin_watch();
    for (int i = 0; i < 3; ++i) ends.reader.read(use);
    ends.reader.end_watch();
    if (!ends.reader.is_empty() || next == kFrames) continue;
    bells.wait(heard);
    heard = bells;
    ends.reader.read(use);
  }
}

TEST(FrameRing, WhatIsNoFrameIsRefused) {
  const auto failure_of = [](const auto& damage) {
    FrameRing ring = FrameRing::make();
    FrameRing other = FrameRing::map(getpid(), ring.descriptor());
    RingReader reader(std::move(ring));
    damage(other);
    EXPECT_THROW(reader.read([](const FrameHeader&, Bytes) { ADD_FAILURE(); }), TransportError);
  };
  failure_of([](FrameRing& ring) { ring.head().written = 8; });
  failure_of([](FrameRing& ring) { ring.head().written = FrameRing::kBytes + 8; });
  failure_of([](FrameRing& ring) { ring.head().written = UINT64_MAX; });
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{1} << 20, UINT64_MAX}) {
    failure_of([bytes](FrameRing& ring) {
      const FrameHeader header{.kind = FrameKind::Whole, .bytes = bytes};
      std::memcpy(ring.at(0), &header, sizeof header);
      ring.head().written = sizeof header;
    });
  }
}

TEST(FrameRing, AReaderThatClaimsToHaveReadMoreGetsNothing) {
  Ends ends(FrameRing::make());
  FrameRing other = FrameRing::map(getpid(), ends.reader.descriptor());
  other.head().read = 1 << 30;
  EXPECT_FALSE(ends.put({}, {}));
}

TEST(FrameRing, OnlyMemoryOfAFixedSizeIsMapped) {
  EXPECT_FALSE(FrameRing::map(getpid(), 1'000'000).is_open());
  const int file = memfd_create("other", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(file, 4096 + FrameRing::kBytes), 0);
  EXPECT_FALSE(FrameRing::map(getpid(), file).is_open());
  close(file);
  const int small = memfd_create("small", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(fcntl(small, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_FALSE(FrameRing::map(getpid(), small).is_open());
  close(small);
  const FrameRing ring = FrameRing::make();
  EXPECT_NE(ftruncate(ring.descriptor(), 0), 0);
}

TEST(SharedClaims, TwoThatCopyClaimEveryByteOnce) {
  constexpr uint64_t kTotal = 1'000'003;
  SharedClaims claims;
  for (uint16_t use = 1; use < 20; ++use) {
    claims.begin(use);
    std::vector<uint8_t> taken(kTotal);
    const auto copy = [&](uint64_t most) {
      while (const auto begin = claims.claim(use, most, kTotal)) {
        for (uint64_t i = *begin; i < std::min(kTotal, *begin + most); ++i) ++taken[i];
      }
    };
    std::jthread other(copy, 700);
    copy(700);
    other.join();
    EXPECT_EQ(std::ranges::count(taken, 1), static_cast<std::ptrdiff_t>(kTotal));
  }
}

TEST(SharedClaims, NobodyClaimsOfAnotherMessageOrAfterTheEnd) {
  SharedClaims claims;
  claims.begin(1);
  EXPECT_EQ(claims.claim(1, 40, 100), 0u);
  EXPECT_EQ(claims.claim(1, 40, 100), 40u);
  EXPECT_EQ(claims.claim(2, 40, 100), std::nullopt);
  EXPECT_EQ(claims.stop(1, 100), 80u);
  EXPECT_EQ(claims.claim(1, 40, 100), std::nullopt);
  EXPECT_EQ(claims.stop(1, 100), 100u);
  claims.begin(2);
  EXPECT_EQ(claims.claim(1, 40, 100), std::nullopt);
  EXPECT_EQ(claims.claim(2, 40, 100), 0u);
}

}  // namespace
}  // namespace penstock::net
