#include "penstock/net/memory_path.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/net/wire.h"
#include "penstock/util/error.h"

namespace penstock::net {

namespace {

/// Per call of process_vm_readv, which takes 1024 at most.
constexpr size_t kMostParts = 64;

std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void put_text(Connection& connection, FrameHeader header, const std::string& text) {
  header.bytes = text.size();
  connection.put(header, std::as_bytes(std::span(text)));
}

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
      return true;
    case FrameKind::Offer:
      on_offer(header.tag, behind);
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
  put_text(context_.connection, {.kind = FrameKind::Process}, to_wire(own_card(nonce_)));
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
  put_text(context_.connection, {.kind = FrameKind::Offer, .tag = tag}, to_wire(offer));
}

void MemoryPath::on_answer(const Tag& tag, bool taken) {
  auto found = offered_.extract(tag);
  if (found.empty()) throw TransportError("answered an offer that was not made");
  Outgoing& outgoing = found.mapped().message;
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

// ---- the receiver

void MemoryPath::on_offer(const Tag& tag, Bytes behind) {
  if (!memory_) throw TransportError("offered memory that this rank does not read");
  auto offer = from_wire<Offer>(text_of(behind));
  if (offer.addresses.size() != offer.sizes.size())
    throw TransportError("sent an offer of parts without addresses");
  context_.inbox.begin(tag, offer.sizes);
  Incoming* const incoming = context_.inbox.find(tag);
  if (incoming == nullptr) {
    context_.connection.put({.kind = FrameKind::Taken, .tag = tag});
    return;
  }
  incoming->announced = incoming->left;
  const Order order = orders_.next(offer.urgency);
  to_copy_.emplace(order, ToCopy{tag, std::move(offer), incoming->left});
  if (!is_copying_) copy_later();
}

void MemoryPath::copy_later() {
  is_copying_ = true;
  // One piece at a time: whatever else the thread of the mesh has to do comes between two.
  context_.connection.post([this] {
    is_copying_ = false;
    if (to_copy_.empty()) return;
    copy_piece();
    if (!to_copy_.empty()) copy_later();
  });
}

void MemoryPath::look() {
  if (!to_copy_.empty()) copy_piece();
}

void MemoryPath::copy_piece() {
  ToCopy& copying = to_copy_.begin()->second;
  Incoming& incoming = *context_.inbox.find(copying.tag);
  const bool copied = copy_some(incoming, copying);
  if (copied && copying.left > 0) return;
  const auto [tag, offer, left] = std::move(copying);
  to_copy_.erase(to_copy_.begin());
  // A seal that is broken: the sender has closed the run, and the bytes may be anything.
  if (copied && memory_->holds(offer.seal_address, offer.seal)) {
    context_.state.received += static_cast<int64_t>(incoming.left);
    context_.state.received_by_memory += static_cast<int64_t>(incoming.left);
    context_.inbox.filled(tag, incoming.left);
    context_.connection.put({.kind = FrameKind::Taken, .tag = tag});
    return;
  }
  incoming.next = {};
  incoming.announced = 0;
  context_.connection.put({.kind = FrameKind::Refused, .tag = tag});
}

bool MemoryPath::copy_some(Incoming& incoming, ToCopy& copying) {
  std::vector<iovec> into;
  std::vector<iovec> from;
  Cursor next = incoming.next;
  uint64_t room = std::min<uint64_t>(context_.state.piece_bytes, copying.left);
  while (room > 0 && into.size() < kMostParts) {
    const Memory rest = next.rest(incoming.parts);
    const size_t count = std::min<uint64_t>(room, rest.size());
    into.push_back({rest.data(), count});
    from.push_back(remote_part(copying.offer.addresses[next.part] + next.offset, count));
    next.offset += count;
    room -= count;
  }
  const size_t copied = memory_->read(into, from);
  if (copied == 0) return false;
  copying.left -= copied;
  incoming.next.advance(incoming.parts, copied);
  return true;
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
  std::erase_if(to_copy_, [this, run](const auto& entry) {
    if (entry.second.tag.run > run) return false;
    context_.connection.put({.kind = FrameKind::Taken, .tag = entry.second.tag});
    return true;
  });
}

}  // namespace penstock::net
