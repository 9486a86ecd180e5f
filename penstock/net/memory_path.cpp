#include "penstock/net/memory_path.h"

#include <algorithm>
#include <string>

#include "penstock/net/wire.h"
#include "penstock/util/error.h"

namespace penstock::net {

namespace {

Bytes bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

}  // namespace

bool MemoryPath::on_frame(const FrameHeader& header, Bytes behind) {
  switch (header.kind) {
    case FrameKind::Process:
      on_process(behind);
      return true;
    case FrameKind::Look:
      on_look();
      return true;
    case FrameKind::Reads:
      // Of a rank that does not say where it is, nobody can have read anything.
      is_read_ = context_.state.same_host_memory;
      if (is_read_) copies_.share();
      return true;
    case FrameKind::Offer:
      copies_.on_offer(header.tag, behind);
      return true;
    case FrameKind::Into:
      on_into(header.tag, behind);
      return true;
    case FrameKind::Given:
      copies_.on_given(header.tag, behind);
      return true;
    case FrameKind::Taken:
    case FrameKind::Refused:
      on_answer(header.tag, header.kind == FrameKind::Taken);
      return true;
    default:
      return false;
  }
}

// ---- who reads whom

void MemoryPath::introduce() {
  if (!context_.state.same_host_memory) return;
  ProcessCard card = own_card(nonce_);
  context_.link.offer(card);
  const std::string text = to_wire(card);
  context_.connection.put({.kind = FrameKind::Process, .bytes = text.size()}, bytes_of(text));
}

void MemoryPath::on_process(Bytes behind) {
  const auto card = from_wire<ProcessCard>(text_of(behind));
  const ProcessCard own = own_card(nonce_);
  if (!context_.state.same_host_memory || !is_same_host(own, card)) return;
  peer_card_ = card;
  context_.state.permission.give(own, card);
  context_.connection.put({.kind = FrameKind::Look});
}

void MemoryPath::on_look() {
  if (!peer_card_) return;
  if (!RemoteMemory(peer_card_->pid).holds(peer_card_->address, peer_card_->nonce)) return;
  memory_.emplace(peer_card_->pid);
  copies_.read_from(peer_card_->pid);
  context_.link.open(*peer_card_);
  context_.connection.put({.kind = FrameKind::Reads});
}

// ---- the sender

bool MemoryPath::takes(const Outgoing& outgoing) const {
  return is_read_ && outgoing.left > 0 && outgoing.left >= context_.state.same_host_bytes;
}

void MemoryPath::send(Outgoing outgoing) {
  auto seal = std::make_unique<Seal>();
  Offer offer{.urgency = outgoing.urgency,
              .seal_address = seal->address(),
              .seal = seal->value(),
              .sizes = outgoing.sizes()};
  for (const Bytes& part : outgoing.parts)
    offer.addresses.push_back(reinterpret_cast<uint64_t>(part.data()));
  const Tag tag = outgoing.tag;
  offered_.insert_or_assign(tag, Offered{std::move(outgoing), std::move(seal)});
  const std::string text = to_wire(offer);
  context_.link.put({.kind = FrameKind::Offer, .tag = tag, .bytes = text.size()}, bytes_of(text));
}

void MemoryPath::on_answer(const Tag& tag, bool taken) {
  auto found = offered_.extract(tag);
  if (found.empty()) throw TransportError("answered an offer that was not made");
  Outgoing& outgoing = found.mapped().message;
  std::erase_if(to_give_, [&tag](const auto& entry) { return entry.second == tag; });
  if (taken) {
    context_.state.sent += static_cast<int64_t>(outgoing.left);
    context_.state.sent_by_memory += static_cast<int64_t>(outgoing.left);
    const auto transfer = std::move(outgoing.transfer);
    found = {};
    transfer->end(Transfer::Result::Done);
    return;
  }
  if (tag.run <= context_.state.closed_run) return;
  // What cannot be read once will probably not be readable later. The receiver has the sizes.
  is_read_ = false;
  found.mapped().seal.reset();
  outgoing.begun = true;
  context_.send_again(std::move(outgoing));
}

// ---- the sender helps

void MemoryPath::on_into(const Tag& tag, Bytes behind) {
  auto into = from_wire<IntoPlaces>(text_of(behind));
  const auto found = offered_.find(tag);
  // It may have been answered by now, over the connection.
  if (found == offered_.end() || tag.run <= context_.state.closed_run) return;
  if (into.slot >= RingHead::kClaims || into.addresses.size() != found->second.message.parts.size())
    throw TransportError("wants a message to be written to places that it does not name");
  // The peer does not know what the system has refused here: it copies all itself then.
  if (!memory_ || !context_.link.is_open()) return;
  if (!found->second.into.addresses.empty())
    throw TransportError("names the places of a message again");
  found->second.into = std::move(into);
  to_give_.emplace(orders_.next(found->second.message.urgency), tag);
}

bool MemoryPath::give_piece() {
  if (to_give_.empty()) return false;
  const Tag tag = to_give_.begin()->second;
  Offered& offered = offered_.at(tag);
  const uint64_t total = offered.message.left;
  const uint64_t most = shared_piece(total, context_.state.piece_bytes);
  const auto begin = context_.link.claims_out(offered.into.slot)
                         .claim(static_cast<uint16_t>(offered.into.use), most, total);
  if (!begin) {
    to_give_.erase(to_give_.begin());
    return true;
  }
  if (*begin < offered.at) {
    to_give_.erase(to_give_.begin());
    throw TransportError(kClaimedTwice);
  }
  GivenBytes given{.bytes = std::min(most, total - *begin)};
  if (!write_range(offered, *begin, given.bytes)) {
    given.failed = 1;
    to_give_.erase(to_give_.begin());
  }
  const std::string text = to_wire(given);
  context_.link.put({.kind = FrameKind::Given, .tag = tag, .bytes = text.size()}, bytes_of(text));
  return true;
}

bool MemoryPath::write_range(Offered& offered, uint64_t begin, uint64_t bytes) {
  const std::vector<Bytes>& parts = offered.message.parts;
  offered.next.advance(parts, begin - offered.at);
  offered.at = begin + bytes;
  return copy_parts(
      offered.next, parts, offered.into.addresses, bytes,
      [this](const auto& own, const auto& theirs) { return memory_->write(own, theirs); });
}

// ---- the end

void MemoryPath::close_run(uint32_t run) {
  for (auto& [tag, offered] : offered_) {
    // It stays until the peer has answered, and so does its memory.
    if (tag.run > run) continue;
    // In this order: who sees the end may write to the memory.
    if (offered.seal) offered.seal->break_now();
    offered.message.transfer->end(Transfer::Result::Closed);
  }
  std::erase_if(to_give_, [run](const auto& entry) { return entry.second.run <= run; });
  copies_.close_run(run);
}

void MemoryPath::end() {
  to_give_.clear();
  offered_.clear();
  copies_.end();
}

}  // namespace penstock::net
