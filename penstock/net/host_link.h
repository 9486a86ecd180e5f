// Frames to and from a rank of the same host, through shared memory where both can have it
// (frame_ring.h), else over the connection. The connection is also the bell: it wakes a rank that
// does not look. Internal to net; everything but begin_watch(), end_watch() and has_input() is
// called with the mesh's mutex held.
//
//   HostLink link(connection);
//   link.offer(card);                     // in the card that the peer gets
//   link.open(card_of_peer);              // once its nonce has been read
//   link.put({.kind = FrameKind::Posted, .tag = tag});
//   link.read(on_frame);
#pragma once

#include <span>

#include "penstock/net/connection.h"
#include "penstock/net/frame_ring.h"
#include "penstock/net/same_host.h"

namespace penstock::net {

class HostLink {
 public:
  /// Whether a frame is to wake a rank that does not look.
  enum class Bell : uint8_t { Rings, Silent };

  explicit HostLink(Connection& connection) : connection_(connection) {}

  /// Makes the memory in which the peer puts its frames and says in the card where it is. None for
  /// an encrypted connection.
  void offer(ProcessCard& card);
  /// Maps the peer's.
  void open(const ProcessCard& peer);
  /// Whether frames to the peer go through shared memory.
  bool is_open() const { return out_.is_open(); }
  /// Whether the peer's may, too: the system may have given memory for one direction only.
  bool is_two_way() const { return is_open() && in_.is_open(); }
  /// Whether those of the peer do.
  bool is_used() const { return in_.is_used(); }

  /// The header's `bytes` are those behind it. A silent one that has no room is left out.
  void put(const FrameHeader& header, Bytes behind = {}, Bell bell = Bell::Rings);
  bool has_room(uint64_t bytes_behind) const { return out_.has_room(bytes_behind); }
  /// Through shared memory, where has_room() was asked. False: nothing was put.
  bool put_parts(const FrameHeader& header, Bytes first, std::span<const Bytes> parts);
  /// Uses what has come; false: nothing. Throws TransportError, and what `use` throws.
  template <class Use>
  bool read(const Use& use) {
    if (is_broken_ || is_reading_) return false;
    is_reading_ = true;
    try {
      const bool any = in_.read(use) > 0;
      is_reading_ = false;
      return any;
    } catch (...) {
      is_broken_ = true;
      throw;
    }
  }

  /// While a thread watches, nobody is woken. After end_watch() it must make sure that what
  /// has_input() says is read.
  void begin_watch() { in_.begin_watch(); }
  void end_watch() { in_.end_watch(); }
  bool has_input() const { return !in_.is_empty(); }
  /// Wakes the peer for what it has not read yet, even though one of its threads watches.
  void ring_for_unread();

  /// Of messages that come, and of those that go.
  SharedClaims& claims_in(size_t number) const { return in_.claims(number); }
  SharedClaims& claims_out(size_t number) const { return out_.claims(number); }

 private:
  void ring();

  Connection& connection_;
  RingReader in_;
  RingWriter out_;
  bool is_reading_ = false;
  bool is_broken_ = false;  ///< what came was no frame: nothing is read any more
};

}  // namespace penstock::net
