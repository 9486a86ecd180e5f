// Frames through memory that two ranks of one host share: one rank writes, the other reads, and the
// kernel has no part in it. The reader makes the memory, and the writer maps it, too. Internal to
// net.
//
//   FrameRing ring = FrameRing::make();                       // the reader
//   RingWriter writer(FrameRing::map(pid, ring.descriptor())); // the writer, in another process
//   if (writer.put(header, {bytes}) && writer.has_to_ring()) ...        // nobody looks: wake it
//   RingReader reader(std::move(ring));
//   reader.read([](const FrameHeader& header, Bytes behind) { ... });
//
// A frame is there as a whole or not at all. Who writes never waits: without room nothing is put.
// What the other side has written is not believed: lengths are checked, and its size cannot change.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <utility>

#include "penstock/net/frame.h"
#include "penstock/util/error.h"

namespace penstock::net {

/// Which bytes of a message are still to be copied, where two ranks copy it: each claims the next
/// ones. Lies in shared memory. Lock-free.
class SharedClaims {
 public:
  /// For another message; `use` tells it from those before.
  void begin(uint16_t use) { word_ = uint64_t{use} << kUseShift; }
  /// The offset of the next bytes, at most `most` of `total`; nothing when there are none any more,
  /// or when it is another message by now. Both sides write the word: who believes an offset checks
  /// that it has not gone back.
  std::optional<uint64_t> claim(uint16_t use, uint64_t most, uint64_t total);
  /// Nobody claims anything any more. Returns how many bytes are claimed.
  uint64_t stop(uint16_t use, uint64_t total);

 private:
  static constexpr int kUseShift = 48;
  static constexpr uint64_t kOffset = (uint64_t{1} << kUseShift) - 1;

  alignas(64) std::atomic<uint64_t> word_{0};
};

/// The first page of the shared memory.
struct RingHead {
  static constexpr size_t kClaims = 8;

  alignas(64) std::atomic<uint64_t> written{0};   ///< bytes, ever; the writer's
  alignas(64) std::atomic<uint64_t> read{0};      ///< bytes, ever; the reader's
  alignas(64) std::atomic<uint32_t> watchers{0};  ///< threads of the reader that look all the time
  std::atomic<uint32_t> is_rung{0};  ///< the writer has woken the reader, who is to look
  std::array<SharedClaims, kClaims> claims;
};
static_assert(sizeof(RingHead) <= 4096 && std::atomic<uint64_t>::is_always_lock_free);

/// Shared memory, mapped: the head, and the ring twice, one behind the other, so that no frame is
/// in two parts. Movable; empty where the system gives none.
class FrameRing {
 public:
  static constexpr size_t kBytes = 256 << 10;  ///< of the ring

  FrameRing() = default;
  ~FrameRing();
  FrameRing(FrameRing&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)),
        memory_(std::exchange(other.memory_, nullptr)) {}
  FrameRing& operator=(FrameRing&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    std::swap(memory_, other.memory_);
    return *this;
  }
  FrameRing(const FrameRing&) = delete;
  FrameRing& operator=(const FrameRing&) = delete;

  /// New memory, whose size nobody can change.
  static FrameRing make();
  /// That which a process has under a descriptor, unless it is something else.
  static FrameRing map(int32_t pid, int32_t descriptor);

  bool is_open() const { return memory_ != nullptr; }
  /// As the other process names it; -1 when there is none.
  int32_t descriptor() const { return descriptor_; }
  RingHead& head() const { return *reinterpret_cast<RingHead*>(memory_); }
  /// Where the byte with this number lies; up to kBytes follow it.
  std::byte* at(uint64_t number) const;

 private:
  bool map_memory(int descriptor);

  int32_t descriptor_ = -1;
  std::byte* memory_ = nullptr;
};

/// Not thread-safe, and the only one of its ring.
class RingWriter {
 public:
  RingWriter() = default;
  explicit RingWriter(FrameRing ring) : ring_(std::move(ring)) {}

  bool is_open() const { return ring_.is_open(); }
  bool has_room(uint64_t bytes_behind) const;
  /// `behind`, one part after the other, is what the header's `bytes` count. False: there is no
  /// room, and nothing was put.
  bool put(FrameHeader header, std::initializer_list<std::span<const Bytes>> behind);
  /// Whether the reader is to be woken for what was put: nobody looks, nor will by itself, nor has
  /// been woken.
  /// Who gets a yes must do so. `watched`: also where somebody looks.
  bool has_to_ring(bool watched = false);
  bool has_unread() const { return is_open() && ring_.head().written != ring_.head().read; }
  SharedClaims& claims(size_t number) const { return ring_.head().claims[number]; }

 private:
  uint64_t free_bytes() const;

  FrameRing ring_;
  uint64_t written_ = 0;
};

/// is_empty(), begin_watch() and end_watch() may be called by any thread; the rest is not
/// thread-safe.
class RingReader {
 public:
  explicit RingReader(FrameRing ring = {}) : ring_(std::move(ring)) {}

  bool is_open() const { return ring_.is_open(); }
  int32_t descriptor() const { return ring_.descriptor(); }
  bool is_empty() const { return !is_open() || ring_.head().written == ring_.head().read; }
  /// Whether a frame has ever come.
  bool is_used() const { return read_ > 0; }
  SharedClaims& claims(size_t number) const { return ring_.head().claims[number]; }

  /// While somebody watches, the writer wakes nobody. Who ends must look once more.
  void begin_watch() {
    if (is_open()) ++ring_.head().watchers;
  }
  void end_watch() {
    if (is_open()) --ring_.head().watchers;
  }

  /// Calls `use` with each frame that has come; the bytes stay until it returns. Returns how many.
  /// Throws TransportError for what is no frame, and what `use` throws.
  template <class Use>
  size_t read(const Use& use) {
    if (!is_open()) return 0;
    if (ring_.head().is_rung != 0) ring_.head().is_rung = 0;
    size_t frames = 0;
    while (const std::optional<FrameHeader> header = next()) {
      use(*header, Bytes(ring_.at(read_) + sizeof *header, header->bytes));
      pass(*header);
      ++frames;
    }
    return frames;
  }

 private:
  std::optional<FrameHeader> next() const;
  void pass(const FrameHeader& header);

  FrameRing ring_;
  uint64_t read_ = 0;
};

}  // namespace penstock::net
