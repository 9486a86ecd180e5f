#include "penstock/net/incoming_copies.h"

#include <algorithm>
#include <mutex>
#include <string_view>
#include <utility>

#include "penstock/net/wire.h"
#include "penstock/util/error.h"

namespace penstock::net {

namespace {

/// Below it the copying is over before the sender knows where to.
constexpr uint64_t kLeastShared = 128 << 10;

/// Memory that a lost rank may still write to, if it is only stopped.
void hold_for_ever(std::shared_ptr<const Place> place) {
  static std::mutex mutex;
  static std::vector<std::shared_ptr<const Place>> held;
  const std::lock_guard lock(mutex);
  held.push_back(std::move(place));
}

}  // namespace

uint64_t shared_piece(uint64_t total, uint64_t piece_bytes) {
  // Smaller than alone, so that none waits long for the other's last one.
  constexpr uint64_t kLeast = 64 << 10;
  return std::max<uint64_t>(std::min(piece_bytes / 2, std::max(total / 4, kLeast)), 1);
}

void IncomingCopies::on_offer(const Tag& tag, Bytes behind) {
  if (!memory_) throw TransportError("offered memory that this rank does not read");
  auto offer = from_wire<Offer>(text_of(behind));
  if (offer.addresses.size() != offer.sizes.size())
    throw TransportError("sent an offer of parts without addresses");
  context_.inbox.begin(tag, offer.sizes);
  Incoming* const incoming = context_.inbox.find(tag);
  if (incoming == nullptr) return context_.link.put({.kind = FrameKind::Taken, .tag = tag});
  incoming->announced = incoming->left;
  const Order order = orders_.next(offer.urgency);
  Copy& copy = copies_[tag];
  copy = {.order = order,
          .offer = std::move(offer),
          .place = incoming->place,
          .parts = incoming->parts,
          .total = incoming->left,
          .missing = incoming->left};
  claim_slot(tag, copy);
  queue_.emplace(order, tag);
  ++context_.state.to_copy;
  if (context_.state.watchers == 0) copy_later();
}

void IncomingCopies::claim_slot(const Tag& tag, Copy& copy) {
  ++last_use_;
  copy.use = last_use_;
  while (copy.slot < slots_.size() && slots_[copy.slot]) ++copy.slot;
  const bool is_shared = shares_ && context_.link.is_two_way() && copy.total >= kLeastShared &&
                         copy.slot < slots_.size();
  if (!is_shared) copy.own_claims = std::make_unique<SharedClaims>();
  claims(copy).begin(copy.use);
  if (!is_shared) return;
  slots_[copy.slot] = true;
  IntoPlaces places{.slot = copy.slot, .use = copy.use};
  for (const Memory& part : copy.parts)
    places.addresses.push_back(reinterpret_cast<uint64_t>(part.data()));
  const std::string text = to_wire(places);
  // A sender that computes is not woken: it has better things to do.
  context_.link.put({.kind = FrameKind::Into, .tag = tag, .bytes = text.size()},
                    std::as_bytes(std::span(text)), HostLink::Bell::Silent);
}

// ---- copying

void IncomingCopies::copy_later() {
  if (is_copying_ || queue_.empty()) return;
  is_copying_ = true;
  // One piece at a time: whatever else the thread of the mesh has to do comes between two.
  context_.connection.post([this] {
    is_copying_ = false;
    try {
      copy_piece();
    } catch (const TransportError& failure) {
      return context_.connection.lose(failure.what());
    }
    copy_later();
  });
}

bool IncomingCopies::copy_piece() {
  if (queue_.empty()) return false;
  const auto found = copies_.find(queue_.begin()->second);
  Copy& copy = found->second;
  const uint64_t most = copy.own_claims ? context_.state.piece_bytes
                                        : shared_piece(copy.total, context_.state.piece_bytes);
  const std::optional<uint64_t> begin = claims(copy).claim(copy.use, most, copy.total);
  if (!begin) return leave_queue(copy), true;
  const uint64_t bytes = std::min(most, copy.total - *begin);
  if (*begin < copy.at || bytes > copy.missing) {
    leave_queue(copy);
    throw TransportError(kClaimedTwice);
  }
  copy.missing -= bytes;
  if (!copy_range(copy, *begin, bytes)) {
    copy.has_failed = true;
    if (!stop(copy)) throw TransportError(kClaimedTwice);
  } else if (*begin + bytes == copy.total) {
    leave_queue(copy);
  }
  if (copy.missing == 0) finish(found);
  return true;
}

bool IncomingCopies::copy_range(Copy& copy, uint64_t begin, uint64_t bytes) {
  copy.next.advance(copy.parts, begin - copy.at);
  copy.at = begin + bytes;
  return copy_parts(
      copy.next, copy.parts, copy.offer.addresses, bytes,
      [this](const auto& own, const auto& theirs) { return memory_->read(own, theirs); });
}

void IncomingCopies::on_given(const Tag& tag, Bytes behind) {
  const auto given = from_wire<GivenBytes>(text_of(behind));
  const auto found = copies_.find(tag);
  if (found == copies_.end() || given.bytes > found->second.missing)
    throw TransportError("says that it has written what was not to be written");
  Copy& copy = found->second;
  copy.missing -= given.bytes;
  if (given.failed != 0) {
    copy.has_failed = true;
    if (!stop(copy)) throw TransportError(kClaimedTwice);
  }
  if (copy.missing == 0) finish(found);
}

bool IncomingCopies::stop(Copy& copy) {
  leave_queue(copy);
  const uint64_t unclaimed = copy.total - claims(copy).stop(copy.use, copy.total);
  if (unclaimed > copy.missing) return false;
  copy.missing -= unclaimed;
  return true;
}

void IncomingCopies::leave_queue(const Copy& copy) {
  if (queue_.erase(copy.order) > 0) --context_.state.to_copy;
}

void IncomingCopies::finish(Copies::iterator found) {
  leave_queue(found->second);
  auto entry = copies_.extract(found);
  const Tag tag = entry.key();
  const Copy& copy = entry.mapped();
  if (!copy.own_claims) slots_[copy.slot] = false;
  Incoming* const incoming = copy.is_closed ? nullptr : context_.inbox.find(tag);
  if (incoming == nullptr) return context_.link.put({.kind = FrameKind::Taken, .tag = tag});
  // A seal that is broken: the sender has closed the run, and the bytes may be anything.
  if (!copy.has_failed && memory_->holds(copy.offer.seal_address, copy.offer.seal)) {
    context_.state.received += static_cast<int64_t>(copy.total);
    context_.state.received_by_memory += static_cast<int64_t>(copy.total);
    context_.link.put({.kind = FrameKind::Taken, .tag = tag});
    context_.inbox.filled(tag, copy.total);
    return;
  }
  incoming->announced = 0;
  context_.link.put({.kind = FrameKind::Refused, .tag = tag});
}

// ---- the end

void IncomingCopies::close_run(uint32_t run) {
  for (auto found = copies_.begin(); found != copies_.end();) {
    const auto here = found++;
    Copy& copy = here->second;
    if (here->first.run > run || copy.is_closed) continue;
    copy.is_closed = true;
    if (!stop(copy))
      context_.connection.post([this] { context_.connection.lose(kClaimedTwice); });
    else if (copy.missing == 0)
      finish(here);
  }
}

void IncomingCopies::end() {
  for (auto& [tag, copy] : copies_) {
    leave_queue(copy);
    if (copy.missing > 0) hold_for_ever(std::move(copy.place));
  }
  copies_.clear();
}

}  // namespace penstock::net
