#include "penstock/net/pieces_path.h"

#include <algorithm>

namespace penstock::net {

namespace {

constexpr size_t kMostDiscarded = 64 << 10;

}  // namespace

// ---- the sender

void PiecesPath::send(Outgoing outgoing) {
  const Order order = orders_.next(outgoing.urgency);
  ready_.emplace(order, std::move(outgoing));
  context_.connection.write();
}

std::shared_ptr<const void> PiecesPath::next_output(std::vector<std::byte>& frames,
                                                    std::vector<asio::const_buffer>& buffers) {
  current_ = ready_.begin()->first;
  Outgoing& outgoing = ready_.begin()->second;
  if (!outgoing.begun) {
    outgoing.begun = true;
    const std::vector<uint64_t> sizes = outgoing.sizes();
    const Bytes behind = std::as_bytes(std::span(sizes));
    append_frame(frames, {.kind = FrameKind::Sizes, .tag = outgoing.tag, .bytes = behind.size()},
                 behind);
  }
  uint64_t length = std::min<uint64_t>(outgoing.left, context_.state.piece_bytes);
  if (length > 0)
    append_frame(frames, {.kind = FrameKind::Piece, .tag = outgoing.tag, .bytes = length});
  // The frames of this write lie in `frames`; what is behind them in the sender's own memory.
  buffers.emplace_back(frames.data(), frames.size());
  outgoing.left -= length;
  context_.state.sent += static_cast<int64_t>(length);
  while (length > 0) {
    const Bytes rest = outgoing.next.rest(outgoing.parts);
    const size_t count = std::min<uint64_t>(length, rest.size());
    buffers.emplace_back(rest.data(), count);
    outgoing.next.offset += count;
    length -= count;
  }
  return outgoing.keep;
}

void PiecesPath::output_written() {
  const auto found = ready_.find(current_);
  if (found == ready_.end() || found->second.left > 0) return;
  const auto transfer = std::move(found->second.transfer);
  ready_.erase(found);
  transfer->end(Transfer::Result::Done);
}

void PiecesPath::close_run(uint32_t run) {
  std::erase_if(ready_, [run](const auto& entry) {
    if (entry.second.tag.run > run) return false;
    entry.second.transfer->end(Transfer::Result::Closed);
    return true;
  });
}

// ---- the receiver

bool PiecesPath::on_frame(const FrameHeader& header, Bytes) {
  if (header.kind != FrameKind::Piece) return false;
  context_.inbox.find_for_piece(header.tag, header.bytes);
  piece_tag_ = header.tag;
  piece_left_ = header.bytes;
  return true;
}

Connection::Payload::Room PiecesPath::room() {
  Incoming* const incoming = context_.inbox.find(piece_tag_);
  if (incoming == nullptr) {
    discarded_.resize(kMostDiscarded);
    return {Memory(discarded_).first(std::min<uint64_t>(piece_left_, discarded_.size())), nullptr};
  }
  const Memory rest = incoming->next.rest(incoming->parts);
  return {rest.first(std::min<uint64_t>(piece_left_, rest.size())), incoming->place};
}

void PiecesPath::filled(size_t bytes) {
  piece_left_ -= bytes;
  Incoming* const incoming = context_.inbox.find(piece_tag_);
  if (incoming == nullptr) return;
  context_.state.received += static_cast<int64_t>(bytes);
  incoming->next.offset += bytes;
  context_.inbox.filled(piece_tag_, bytes);
}

}  // namespace penstock::net
