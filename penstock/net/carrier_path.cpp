#include "penstock/net/carrier_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

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

void CarrierPath::introduce() {
  if (context_.state.carrier) context_.connection.put({.kind = FrameKind::Carries});
}

bool CarrierPath::on_frame(const FrameHeader& header, Bytes) {
  if (header.kind == FrameKind::Carries)
    carries_ = true;
  else if (header.kind == FrameKind::Carried)
    on_carried(header);
  else
    return false;
  return true;
}

Carrier::Done CarrierPath::on_mesh(std::function<void(const std::string& error)> then) {
  return [&connection = context_.connection, hold = context_.connection.hold(),
          then = std::move(then)](const std::string& error) {
    connection.post([then, error] { then(error); });
  };
}

// ---- the sender

bool CarrierPath::takes(const Outgoing& outgoing) const {
  if (!context_.state.carrier || !carries_) return false;
  return std::any_of(outgoing.parts.begin(), outgoing.parts.end(), [this](const Bytes& part) {
    return !part.empty() && part.size() >= context_.state.carrier_bytes;
  });
}

void CarrierPath::send(Outgoing outgoing) {
  const Tag tag = outgoing.tag;
  const std::vector<uint64_t> sizes = outgoing.sizes();
  const Bytes behind = std::as_bytes(std::span(sizes));
  context_.connection.put({.kind = FrameKind::Sizes, .tag = tag, .bytes = behind.size()}, behind);
  const size_t lane = lane_of(outgoing.urgency);
  lanes_[lane].waiting.emplace(orders_.next(outgoing.urgency), tag);
  carried_.insert_or_assign(tag, CarriedMessage{std::move(outgoing)});
  carry_pieces(lane);
}

void CarrierPath::carry_pieces(size_t lane) {
  Lane& own = lanes_[lane];
  // What cannot be announced any more would never be asked for.
  while (context_.connection.takes_frames() && !own.waiting.empty() &&
         own.carried < kPiecesAtOnce) {
    const auto carried = carried_.find(own.waiting.begin()->second);
    announce(carried->second, lane);
    if (carried->second.message.left > 0) continue;
    own.waiting.erase(own.waiting.begin());
    end_if_carried(carried);
  }
}

void CarrierPath::announce(CarriedMessage& carried, size_t lane) {
  Outgoing& outgoing = carried.message;
  const Bytes rest = outgoing.next.rest(outgoing.parts);
  const bool is_small = outgoing.parts[outgoing.next.part].size() < context_.state.carrier_bytes;
  const Bytes piece =
      is_small ? rest : rest.first(std::min(context_.state.piece_bytes, rest.size()));
  const size_t bytes = piece.size();
  outgoing.next.offset += bytes;
  outgoing.left -= bytes;
  if (is_small) {
    context_.connection.put({.kind = FrameKind::Piece, .tag = outgoing.tag, .bytes = bytes}, piece);
    context_.state.sent += static_cast<int64_t>(bytes);
    return;
  }
  context_.connection.put({.kind = FrameKind::Carried,
                           .lane = static_cast<uint32_t>(lane),
                           .tag = outgoing.tag,
                           .bytes = bytes});
  ++carried.pieces;
  ++lanes_[lane].carried;
  context_.state.carrier->send(
      context_.rank, static_cast<int>(lane), {piece, lanes_[lane].sent++, outgoing.keep},
      on_mesh([this, tag = outgoing.tag, lane, bytes](const std::string& error) {
        on_sent(tag, lane, bytes, error);
      }));
}

void CarrierPath::on_sent(const Tag& tag, size_t lane, size_t bytes, const std::string& error) {
  --lanes_[lane].carried;
  if (!context_.connection.is_open()) return;
  if (!error.empty()) {
    lose_later(fmt::format("does not exchange messages any more: {}", error));
    return;
  }
  context_.state.sent += static_cast<int64_t>(bytes);
  context_.state.sent_by_carrier += static_cast<int64_t>(bytes);
  if (const auto carried = carried_.find(tag); carried != carried_.end()) {
    --carried->second.pieces;
    end_if_carried(carried);
  }
  carry_pieces(lane);
}

void CarrierPath::end_if_carried(std::map<Tag, CarriedMessage>::iterator carried) {
  if (carried->second.message.left > 0 || carried->second.pieces > 0) return;
  const auto transfer = std::move(carried->second.message.transfer);
  carried_.erase(carried);
  transfer->end(Transfer::Result::Done);
}

// ---- the receiver

void CarrierPath::on_carried(const FrameHeader& header) {
  if (!context_.state.carrier) throw TransportError("uses a carrier that this rank does not have");
  if (header.lane >= lanes_.size() || header.bytes == 0 || header.bytes > kMostPiece)
    throw TransportError("sent a piece that no carrier brings");
  Carried<Memory> piece{.number = lanes_[header.lane].received++};
  if (Incoming* const incoming = context_.inbox.find_for_piece(header.tag, header.bytes)) {
    const Memory rest = incoming->next.rest(incoming->parts);
    if (header.bytes > rest.size())
      throw TransportError("sent a piece that is larger than its part");
    piece.bytes = rest.first(header.bytes);
    piece.keep = incoming->place;
    incoming->next.offset += header.bytes;
    incoming->announced += header.bytes;
  } else {
    // Both sides must name the same pieces: it is taken and thrown away.
    const auto discarded = std::make_shared<std::vector<std::byte>>(header.bytes);
    piece.bytes = Memory(*discarded);
    piece.keep = discarded;
  }
  ++coming_;
  context_.state.carrier->receive(
      context_.rank, static_cast<int>(header.lane), std::move(piece),
      on_mesh([this, tag = header.tag, bytes = header.bytes](const std::string& error) {
        on_received(tag, bytes, error);
      }));
}

void CarrierPath::on_received(const Tag& tag, size_t bytes, const std::string& error) {
  --coming_;
  if (!context_.connection.is_open()) return;
  if (!error.empty()) {
    lose_later(fmt::format("does not exchange messages any more: {}", error));
  } else if (Incoming* const incoming = context_.inbox.find(tag)) {
    context_.state.received += static_cast<int64_t>(bytes);
    context_.state.received_by_carrier += static_cast<int64_t>(bytes);
    incoming->announced -= bytes;
    context_.inbox.filled(tag, bytes);
  }
  if (has_ended_ && coming_ == 0) context_.connection.lose("has ended");
}

// ---- the end

void CarrierPath::end_when_all_is_there() {
  has_ended_ = true;
  lose_later("has ended");
}

void CarrierPath::lose_later(const std::string& why) {
  if (timer_) return;
  Connection& connection = context_.connection;
  timer_ = std::make_unique<asio::steady_timer>(connection.executor(), kConnectionFirst);
  timer_->async_wait([&connection, hold = connection.hold(), &mutex = context_.state.mutex,
                      why](const asio::error_code& error) {
    const std::lock_guard lock(mutex);
    if (!error) connection.lose(why);
  });
}

void CarrierPath::close_run(uint32_t run) {
  for (Lane& lane : lanes_)
    std::erase_if(lane.waiting, [run](const auto& entry) { return entry.second.run <= run; });
  // Pieces that the carrier has end by themselves: both sides have named them.
  std::erase_if(carried_, [run](const auto& entry) {
    if (entry.first.run > run) return false;
    entry.second.message.transfer->end(Transfer::Result::Closed);
    return true;
  });
}

}  // namespace penstock::net
