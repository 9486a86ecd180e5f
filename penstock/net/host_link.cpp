#include "penstock/net/host_link.h"

#include <array>

namespace penstock::net {

void HostLink::offer(ProcessCard& card) {
  if (connection_.is_encrypted()) return;
  if (!in_.is_open()) in_ = RingReader(FrameRing::make());
  card.ring = in_.descriptor();
}

void HostLink::open(const ProcessCard& peer) {
  if (connection_.is_encrypted() || peer.ring < 0 || is_open()) return;
  out_ = RingWriter(FrameRing::map(peer.pid, peer.ring));
}

void HostLink::put(const FrameHeader& header, Bytes behind, Bell bell) {
  if (!connection_.takes_frames()) return;
  const std::array<Bytes, 1> parts = {behind};
  const bool is_put = is_open() && out_.put(header, {parts});
  if (bell == Bell::Silent) return;
  if (is_put)
    ring();
  else
    connection_.put(header, behind);
}

bool HostLink::put_parts(const FrameHeader& header, Bytes first, std::span<const Bytes> parts) {
  const std::array<Bytes, 1> one = {first};
  if (!connection_.takes_frames() || !out_.put(header, {one, parts})) return false;
  ring();
  return true;
}

void HostLink::ring_for_unread() {
  if (out_.has_unread() && out_.has_to_ring(/*watched=*/true))
    connection_.put({.kind = FrameKind::Bell});
}

void HostLink::ring() {
  if (out_.has_to_ring()) connection_.put({.kind = FrameKind::Bell});
}

}  // namespace penstock::net
