#include "penstock/net/short_path.h"

#include <cstring>
#include <vector>

#include "penstock/util/error.h"

namespace penstock::net {

namespace {

/// So that some of them have room, and frames beside them.
constexpr uint64_t kMostBytes = FrameRing::kBytes / 4;

/// The sizes of the parts, and what lies behind them. Throws TransportError when they do not fit.
std::vector<uint64_t> sizes_of(uint32_t parts, Bytes& behind) {
  const uint64_t bytes = parts * sizeof(uint64_t);
  if (bytes > behind.size()) throw TransportError("sent a short message without its sizes");
  std::vector<uint64_t> sizes(parts);
  if (bytes > 0) std::memcpy(sizes.data(), behind.data(), bytes);
  behind = behind.subspan(bytes);
  uint64_t left = behind.size();
  for (const uint64_t size : sizes) {
    if (size == kAbsent) continue;
    if (size > left) throw TransportError("sent a short message of another size than it says");
    left -= size;
  }
  if (left > 0) throw TransportError("sent a short message of another size than it says");
  return sizes;
}

}  // namespace

bool ShortPath::takes(const Outgoing& outgoing) const {
  const uint64_t bytes = outgoing.left + outgoing.parts.size() * sizeof(uint64_t);
  return context_.link.is_open() && context_.connection.takes_frames() && !outgoing.begun &&
         (outgoing.left < context_.state.same_host_bytes || outgoing.left == 0) &&
         bytes <= kMostBytes && context_.link.has_room(bytes);
}

void ShortPath::send(Outgoing outgoing) {
  const std::vector<uint64_t> sizes = outgoing.sizes();
  const bool is_sent = context_.link.put_parts(
      {.kind = FrameKind::Whole, .lane = static_cast<uint32_t>(sizes.size()), .tag = outgoing.tag},
      std::as_bytes(std::span(sizes)), outgoing.parts);
  if (is_sent) {
    context_.state.sent += static_cast<int64_t>(outgoing.left);
    context_.state.sent_by_memory += static_cast<int64_t>(outgoing.left);
  }
  const auto transfer = std::move(outgoing.transfer);
  outgoing = {};
  transfer->end(is_sent ? Transfer::Result::Done : Transfer::Result::Closed);
}

bool ShortPath::on_frame(const FrameHeader& header, Bytes behind) {
  if (header.kind != FrameKind::Whole) return false;
  context_.inbox.begin(header.tag, sizes_of(header.lane, behind));
  // Without bytes it has ended by now; so has one of a run that is closed.
  Incoming* const incoming = context_.inbox.find(header.tag);
  if (incoming == nullptr) return true;
  for (const Memory& part : incoming->parts) {
    if (part.empty()) continue;
    std::memcpy(part.data(), behind.data(), part.size());
    behind = behind.subspan(part.size());
  }
  const uint64_t bytes = incoming->left;
  context_.state.received += static_cast<int64_t>(bytes);
  context_.state.received_by_memory += static_cast<int64_t>(bytes);
  context_.inbox.filled(header.tag, bytes);
  return true;
}

}  // namespace penstock::net
