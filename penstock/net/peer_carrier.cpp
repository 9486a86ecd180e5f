// The part of Peer that moves the bytes of messages by a carrier, past the connection.
#include <fmt/format.h>

#include <algorithm>
#include <asio/post.hpp>

#include "penstock/net/peer.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"

namespace penstock::net {

namespace {

/// Per lane: so many keep a library busy while completions come back, and an urgent message waits
/// for at most so many.
constexpr int kPiecesAtOnce = 4;
/// The connection breaks at about the same time as the library's, and has the better reason.
constexpr std::chrono::seconds kConnectionFirst{1};
/// No piece is larger.
constexpr uint64_t kMostPiece = uint64_t{1} << 30;

size_t lane_of(int urgency) { return urgency < 0 ? 1 : 0; }

}  // namespace

void Peer::carry() { put({.kind = FrameKind::Carries}); }

Carrier::Done Peer::on_mesh(std::function<void(const std::string& error)> then) {
  return [self = shared_from_this(), then = std::move(then)](const std::string& error) {
    asio::post(self->socket_.get_executor(), [self, then, error] { then(error); });
  };
}

// ---- the sender

bool Peer::may_carry(const Outgoing& outgoing) const {
  if (!state_.carrier || !carries_) return false;
  return std::any_of(outgoing.parts.begin(), outgoing.parts.end(), [this](const Bytes& part) {
    return !part.empty() && part.size() >= state_.carrier_bytes;
  });
}

void Peer::carry(Outgoing outgoing) {
  const Tag tag = outgoing.tag;
  std::vector<uint64_t> sizes;
  for (const Bytes& part : outgoing.parts)
    sizes.push_back(part.data() == nullptr ? kAbsent : part.size());
  put({.kind = FrameKind::Sizes, .tag = tag, .bytes = sizes.size() * sizeof(uint64_t)},
      std::as_bytes(std::span(sizes)));
  const size_t lane = lane_of(outgoing.urgency);
  lanes_[lane].waiting.emplace(Order{-int64_t{outgoing.urgency}, next_order_++}, tag);
  carried_.insert_or_assign(tag, std::move(outgoing));
  carry_pieces(lane);
}

void Peer::carry_pieces(size_t lane) {
  Lane& own = lanes_[lane];
  // What cannot be announced any more would never be asked for.
  while (!lost_ && !leaving_ && !own.waiting.empty() && own.carried < kPiecesAtOnce) {
    const auto outgoing = carried_.find(own.waiting.begin()->second);
    announce(outgoing->second, lane);
    if (outgoing->second.left > 0) continue;
    own.waiting.erase(own.waiting.begin());
    end_if_carried(outgoing);
  }
}

void Peer::announce(Outgoing& outgoing, size_t lane) {
  while (outgoing.offset == outgoing.parts[outgoing.part].size()) {
    ++outgoing.part;
    outgoing.offset = 0;
  }
  const Bytes part = outgoing.parts[outgoing.part];
  const bool is_small = part.size() < state_.carrier_bytes;
  const size_t bytes =
      is_small ? part.size() : std::min(state_.piece_bytes, part.size() - outgoing.offset);
  const Bytes piece = part.subspan(outgoing.offset, bytes);
  outgoing.offset += bytes;
  outgoing.left -= bytes;
  if (is_small) {
    put({.kind = FrameKind::Piece, .tag = outgoing.tag, .bytes = bytes}, piece);
    state_.sent += static_cast<int64_t>(bytes);
    return;
  }
  put({.kind = FrameKind::Carried,
       .lane = static_cast<uint32_t>(lane),
       .tag = outgoing.tag,
       .bytes = bytes});
  ++outgoing.carried;
  ++lanes_[lane].carried;
  const auto done = on_mesh([this, tag = outgoing.tag, lane, bytes](const std::string& error) {
    sent_by_carrier(tag, lane, bytes, error);
  });
  state_.carrier->send(rank_, static_cast<int>(lane), {piece, lanes_[lane].sent++, outgoing.keep},
                       done);
}

void Peer::sent_by_carrier(const Tag& tag, size_t lane, size_t bytes, const std::string& error) {
  --lanes_[lane].carried;
  if (lost_) return;
  if (!error.empty()) {
    carrier_failed(error);
    return;
  }
  state_.sent += static_cast<int64_t>(bytes);
  state_.sent_by_carrier += static_cast<int64_t>(bytes);
  if (const auto outgoing = carried_.find(tag); outgoing != carried_.end()) {
    --outgoing->second.carried;
    end_if_carried(outgoing);
  }
  carry_pieces(lane);
}

void Peer::end_if_carried(std::map<Tag, Outgoing>::iterator outgoing) {
  if (outgoing->second.left > 0 || outgoing->second.carried > 0) return;
  const auto transfer = std::move(outgoing->second.transfer);
  carried_.erase(outgoing);
  transfer->end(Transfer::Result::Done);
}

// ---- the receiver

void Peer::on_carried(const FrameHeader& header) {
  if (!state_.carrier) throw TransportError("uses a carrier that this rank does not have");
  if (header.lane >= lanes_.size() || header.bytes == 0 || header.bytes > kMostPiece)
    throw TransportError("sent a piece that no carrier brings");
  Carried<Memory> piece{.number = lanes_[header.lane].received++};
  const auto found = incoming_.find(header.tag);
  if (found == incoming_.end()) {
    if (header.tag.run > state_.closed_run)
      throw TransportError("sent a piece that does not belong to its message");
    // Both sides must name the same pieces: it is taken and thrown away.
    const auto discarded = std::make_shared<std::vector<std::byte>>(header.bytes);
    piece.bytes = Memory(*discarded);
    piece.keep = discarded;
  } else {
    Incoming& incoming = found->second;
    if (!incoming.begun || incoming.offer || header.bytes > incoming.left - incoming.announced)
      throw TransportError("sent a piece that does not belong to its message");
    while (incoming.offset == incoming.parts[incoming.part].size()) {
      ++incoming.part;
      incoming.offset = 0;
    }
    const Memory rest = incoming.parts[incoming.part].subspan(incoming.offset);
    if (header.bytes > rest.size())
      throw TransportError("sent a piece that is larger than its part");
    piece.bytes = rest.first(header.bytes);
    piece.keep = incoming.place;
    incoming.offset += header.bytes;
    incoming.announced += header.bytes;
  }
  ++coming_;
  const auto done =
      on_mesh([this, tag = header.tag, bytes = header.bytes](const std::string& error) {
        received_by_carrier(tag, bytes, error);
      });
  state_.carrier->receive(rank_, static_cast<int>(header.lane), std::move(piece), done);
}

void Peer::received_by_carrier(const Tag& tag, size_t bytes, const std::string& error) {
  --coming_;
  if (lost_) return;
  if (!error.empty()) {
    carrier_failed(error);
  } else if (const auto found = incoming_.find(tag); found != incoming_.end()) {
    state_.received += static_cast<int64_t>(bytes);
    state_.received_by_carrier += static_cast<int64_t>(bytes);
    found->second.left -= bytes;
    found->second.announced -= bytes;
    end_if_complete(found);
  }
  if (has_ended_ && coming_ == 0) lose("has ended");
}

// ---- the end

void Peer::on_connection_end() {
  if (!bye_ || coming_ == 0) {
    lose(bye_ ? "has ended" : "closed the connection");
    return;
  }
  // It sent all before it ended, and the carrier still has some of that.
  has_ended_ = true;
  lose_later("has ended");
}

void Peer::carrier_failed(const std::string& error) {
  lose_later(fmt::format("does not exchange messages any more: {}", error));
}

void Peer::lose_later(const std::string& why) {
  if (carrier_timer_) return;
  carrier_timer_ = std::make_unique<asio::steady_timer>(socket_.get_executor(), kConnectionFirst);
  carrier_timer_->async_wait([self = shared_from_this(), why](const asio::error_code& error) {
    if (!error) self->lose(why);
  });
}

void Peer::close_carried(uint32_t run) {
  for (Lane& lane : lanes_)
    std::erase_if(lane.waiting, [run](const auto& entry) { return entry.second.run <= run; });
  // Pieces that the carrier has end by themselves: both sides have named them.
  std::erase_if(carried_, [run](auto& entry) {
    if (entry.first.run > run) return false;
    entry.second.transfer->end(Transfer::Result::Closed);
    return true;
  });
}

}  // namespace penstock::net
