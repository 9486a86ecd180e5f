// Messages that a rank of this host has offered, on their way into this process: it copies them
// from the sender's memory, and a sender that waits copies along. Internal to net.
//
// Both claim pieces of a message in shared memory (frame_ring.h) and say when they have copied
// them. What the sender has claimed it writes at once, and then says so. Until it has, the memory
// here is held, whatever becomes of the message.
#pragma once

#include <bitset>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "penstock/net/path.h"
#include "penstock/net/same_host.h"

namespace penstock::net {

/// Not thread-safe.
class IncomingCopies {
 public:
  explicit IncomingCopies(PathContext& context) : context_(context) {}

  /// From now on that process is read.
  void read_from(int32_t pid) { memory_.emplace(pid); }
  /// The sender may write here, too.
  void share() { shares_ = true; }

  void on_offer(const Tag& tag, Bytes behind);
  void on_given(const Tag& tag, Bytes behind);
  /// Copies a piece of the most urgent message; false: there is none.
  bool copy_piece();
  /// Lets the mesh's thread copy, piece by piece.
  void copy_later();
  void close_run(uint32_t run);
  /// The peer is lost: what it may still write to is held until this process ends.
  void end();

 private:
  struct Copy {
    Order order = {};
    Offer offer = {};
    std::shared_ptr<const Place> place = {};  ///< owns the memory of the parts
    std::vector<Memory> parts = {};
    Cursor next = {};
    uint64_t at = 0;  ///< the offset of `next`
    uint64_t total = 0;
    uint64_t missing = 0;                           ///< bytes that are neither copied nor given
    std::unique_ptr<SharedClaims> own_claims = {};  ///< nobody helps; else those of the slot
    uint32_t slot = 0;
    uint16_t use = 0;
    bool is_closed = false;
    bool has_failed = false;
  };
  using Copies = std::map<Tag, Copy>;

  SharedClaims& claims(const Copy& copy) const {
    return copy.own_claims ? *copy.own_claims : context_.link.claims_in(copy.slot);
  }
  /// Takes a slot, if the sender can help, and tells it.
  void claim_slot(const Tag& tag, Copy& copy);
  bool copy_range(Copy& copy, uint64_t begin, uint64_t bytes);
  /// Nothing more is claimed; what the sender has claimed is still to come. False: the claims make
  /// no sense (kClaimedTwice).
  bool stop(Copy& copy);
  void queue(const Tag& tag, const Copy& copy);
  void leave_queue(const Copy& copy);
  /// Nothing is missing: answers the sender.
  void finish(Copies::iterator found);

  PathContext& context_;
  std::optional<RemoteMemory> memory_;  ///< of the peer, once it has been read
  bool shares_ = false;
  Orders orders_;
  Copies copies_;
  std::map<Order, Tag> queue_;  ///< those of which pieces can be claimed
  std::bitset<RingHead::kClaims> slots_;
  uint16_t last_use_ = 0;
  bool is_copying_ = false;  ///< the mesh's thread is to copy the next piece soon
};

/// What a peer has done that has set claims back.
inline constexpr const char* kClaimedTwice =
    "says in the shared memory that bytes of a message are to be copied again";

/// How much one of two that copy a message claims at a time, at least 1 byte.
uint64_t shared_piece(uint64_t total, uint64_t piece_bytes);

/// Copies `bytes` between the parts from `next` on, which it moves, and the other process.
/// `move(own, others)` copies some and returns how many bytes. False: it could not.
template <class Span, class Move>
bool copy_parts(Cursor& next, const std::vector<Span>& parts,
                const std::vector<uint64_t>& addresses, uint64_t bytes, const Move& move) {
  /// Per call of process_vm_readv, which takes 1024 at most.
  constexpr size_t kMostParts = 64;
  while (bytes > 0) {
    std::vector<iovec> own;
    std::vector<iovec> others;
    Cursor at = next;
    for (uint64_t left = bytes; left > 0 && own.size() < kMostParts;) {
      const Span rest = at.rest(parts);
      const size_t count = std::min<uint64_t>(left, rest.size());
      own.push_back({const_cast<std::byte*>(rest.data()), count});
      others.push_back(remote_part(addresses[at.part] + at.offset, count));
      at.offset += count;
      left -= count;
    }
    const size_t copied = move(own, others);
    if (copied == 0) return false;
    next.advance(parts, copied);
    bytes -= copied;
  }
  return true;
}

}  // namespace penstock::net
