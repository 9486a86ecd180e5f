#include "penstock/net/message.h"

#include "penstock/util/error.h"

namespace penstock::net {

void Inbox::post(const Tag& tag, Place place, std::shared_ptr<Transfer> transfer) {
  messages_.insert_or_assign(tag, Incoming{.place = std::make_shared<const Place>(std::move(place)),
                                           .transfer = std::move(transfer)});
}

void Inbox::begin(const Tag& tag, const std::vector<uint64_t>& sizes) {
  Incoming* const incoming = find(tag);
  if (incoming == nullptr) {
    if (tag.run > closed_run_) throw TransportError("sent a message that nobody waits for");
    return;
  }
  if (incoming->begun) throw TransportError("sent a message twice");
  incoming->parts = (*incoming->place)(sizes);
  incoming->begun = true;
  if (incoming->parts.size() != sizes.size())
    throw InternalError("a message has no place for some of its parts");
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == kAbsent) {
      incoming->parts[i] = {};
      continue;
    }
    if (incoming->parts[i].size() != sizes[i])
      throw InternalError("a message has a place of another size");
    incoming->left += sizes[i];
  }
  filled(tag, 0);
}

Incoming* Inbox::find(const Tag& tag) {
  const auto found = messages_.find(tag);
  return found == messages_.end() ? nullptr : &found->second;
}

Incoming* Inbox::find_for_piece(const Tag& tag, uint64_t bytes) {
  Incoming* const incoming = find(tag);
  if (incoming == nullptr ? tag.run > closed_run_
                          : !incoming->begun || bytes > incoming->left - incoming->announced)
    throw TransportError("sent a piece that does not belong to its message");
  return incoming;
}

void Inbox::filled(const Tag& tag, uint64_t bytes) {
  const auto found = messages_.find(tag);
  if (found == messages_.end()) return;
  found->second.left -= bytes;
  if (found->second.left > 0) return;
  const auto transfer = std::move(found->second.transfer);
  messages_.erase(found);
  transfer->end(Transfer::Result::Done);
}

void Inbox::close_run(uint32_t run) {
  std::erase_if(messages_, [run](const auto& entry) {
    if (entry.first.run > run) return false;
    entry.second.transfer->end(Transfer::Result::Closed);
    return true;
  });
}

}  // namespace penstock::net
