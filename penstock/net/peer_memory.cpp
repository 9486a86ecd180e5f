// The part of Peer that moves messages between two ranks of one host, past the connection.
#include <algorithm>
#include <asio/post.hpp>

#include "penstock/net/peer.h"
#include "penstock/net/wire.h"
#include "penstock/util/error.h"

namespace penstock::net {

namespace {

/// Per call of process_vm_readv, which takes 1024 at most.
constexpr size_t kMostParts = 64;

std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Bytes bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

}  // namespace

// ---- who reads whom

void Peer::introduce() {
  const std::string card = to_wire(own_card(nonce_));
  put({.kind = FrameKind::Process, .bytes = card.size()}, bytes_of(card));
}

void Peer::on_process(Bytes behind) {
  const ProcessCard card = from_wire<ProcessCard>(text_of(behind));
  const ProcessCard own = own_card(nonce_);
  if (!state_.same_host_memory || !is_same_host(own, card)) return;
  peer_card_ = card;
  state_.permission.give(own, card);
  put({.kind = FrameKind::Look});
}

void Peer::on_look() {
  if (!peer_card_) return;
  const RemoteMemory memory(peer_card_->pid);
  if (!memory.holds(peer_card_->address, peer_card_->nonce)) return;
  memory_ = memory;
  put({.kind = FrameKind::Reads});
}

// ---- the sender

bool Peer::may_offer(const Outgoing& outgoing) const {
  return is_read_ && outgoing.left > 0 && outgoing.left >= state_.same_host_bytes;
}

void Peer::offer(Outgoing outgoing) {
  outgoing.seal = std::make_unique<Seal>();
  Offer offer{.urgency = outgoing.urgency,
              .seal_address = outgoing.seal->address(),
              .seal = outgoing.seal->value()};
  for (const Bytes& part : outgoing.parts) {
    offer.sizes.push_back(part.data() == nullptr ? kAbsent : part.size());
    offer.addresses.push_back(reinterpret_cast<uint64_t>(part.data()));
  }
  const Tag tag = outgoing.tag;
  offered_.insert_or_assign(tag, std::move(outgoing));
  const std::string text = to_wire(offer);
  put({.kind = FrameKind::Offer, .tag = tag, .bytes = text.size()}, bytes_of(text));
}

void Peer::on_answer(const Tag& tag, bool taken) {
  auto found = offered_.extract(tag);
  if (found.empty()) throw TransportError("answered an offer that was not made");
  Outgoing& outgoing = found.mapped();
  if (taken) {
    state_.sent += static_cast<int64_t>(outgoing.left);
    state_.sent_by_memory += static_cast<int64_t>(outgoing.left);
    const auto transfer = std::move(outgoing.transfer);
    found = {};
    transfer->end(Transfer::Result::Done);
    return;
  }
  if (tag.run <= state_.closed_run) return;
  // What cannot be read once will probably not be readable later. The receiver has the sizes.
  is_read_ = false;
  outgoing.seal.reset();
  outgoing.begun = true;
  make_ready(std::move(outgoing));
}

void Peer::withdraw(Outgoing& outgoing) {
  // In this order: who sees the end may write to the memory.
  if (outgoing.seal) outgoing.seal->break_now();
  outgoing.transfer->end(Transfer::Result::Closed);
}

// ---- the receiver

void Peer::on_offer(const Tag& tag, Bytes behind) {
  if (!memory_) throw TransportError("offered memory that this rank does not read");
  auto offer = from_wire<Offer>(text_of(behind));
  if (offer.addresses.size() != offer.sizes.size())
    throw TransportError("sent an offer of parts without addresses");
  begin_message(tag, offer.sizes);
  const auto found = incoming_.find(tag);
  if (found == incoming_.end()) {
    put({.kind = FrameKind::Taken, .tag = tag});
    return;
  }
  const Order order{-int64_t{offer.urgency}, next_order_++};
  found->second.offer = std::move(offer);
  to_copy_.emplace(order, tag);
  if (!is_copying_) copy_later();
}

void Peer::copy_later() {
  is_copying_ = true;
  // One piece at a time: whatever else the thread of the mesh has to do comes between two.
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    self->is_copying_ = false;
    if (self->to_copy_.empty()) return;
    self->copy_piece();
    if (!self->to_copy_.empty()) self->copy_later();
  });
}

void Peer::copy_piece() {
  const Tag tag = to_copy_.begin()->second;
  const auto found = incoming_.find(tag);
  Incoming& incoming = found->second;
  const bool copied = copy_some(incoming);
  if (copied && incoming.left > 0) return;
  to_copy_.erase(to_copy_.begin());
  // A seal that is broken: the sender has closed the run, and the bytes may be anything.
  if (copied && memory_->holds(incoming.offer->seal_address, incoming.offer->seal)) {
    int64_t bytes = 0;
    for (const Memory& part : incoming.parts) bytes += static_cast<int64_t>(part.size());
    state_.received += bytes;
    state_.received_by_memory += bytes;
    end_if_complete(found);
    put({.kind = FrameKind::Taken, .tag = tag});
    return;
  }
  incoming.offer.reset();
  incoming.part = incoming.offset = incoming.left = 0;
  for (const Memory& part : incoming.parts) incoming.left += part.size();
  put({.kind = FrameKind::Refused, .tag = tag});
}

bool Peer::copy_some(Incoming& incoming) {
  std::vector<iovec> into;
  std::vector<iovec> from;
  size_t part = incoming.part;
  size_t offset = incoming.offset;
  uint64_t room = std::min<uint64_t>(state_.piece_bytes, incoming.left);
  while (room > 0 && into.size() < kMostParts) {
    const Memory rest = incoming.parts[part].subspan(offset);
    const size_t count = std::min<uint64_t>(room, rest.size());
    if (count > 0) {
      into.push_back({rest.data(), count});
      from.push_back(remote_part(incoming.offer->addresses[part] + offset, count));
    }
    room -= count;
    ++part;
    offset = 0;
  }
  size_t copied = memory_->read(into, from);
  if (copied == 0) return false;
  incoming.left -= copied;
  while (copied > 0) {
    const size_t count = std::min(copied, incoming.parts[incoming.part].size() - incoming.offset);
    copied -= count;
    incoming.offset += count;
    if (incoming.offset < incoming.parts[incoming.part].size()) break;
    ++incoming.part;
    incoming.offset = 0;
  }
  return true;
}

void Peer::close_offers(uint32_t run) {
  for (auto& [tag, outgoing] : offered_) {
    // It stays until the peer has answered, and so does its memory.
    if (tag.run <= run) withdraw(outgoing);
  }
  std::erase_if(to_copy_, [this, run](const auto& entry) {
    if (entry.second.run > run) return false;
    put({.kind = FrameKind::Taken, .tag = entry.second});
    return true;
  });
}

}  // namespace penstock::net
