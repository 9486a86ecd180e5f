// Messages that wait for a wire of the network, in the order in which it will serve them; internal
// to the simulator. Only the first of each wire is in the event queue, so that queue stays small
// even when many messages wait for the wires.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "penstock/simulate/event_queue.h"
#include "penstock/simulate/network.h"

namespace penstock::simulate::detail {

class WaitingMessages {
 public:
  /// `network`: holds the end of each wire's queue.
  explicit WaitingMessages(Network& network) : network_(network) {}

  /// The message's wire begins to serve it at `when_ns`, after those that were added earlier. Its
  /// event goes into the queue when it is the first of its wire.
  void add(const Transit& message, int64_t when_ns, EventQueue& events) {
    const uint32_t slot = new_slot();
    slots_[slot] = {message, when_ns, kNone};
    uint32_t& last = network_.last_waiting(message.wire);
    if (last == kNone) {
      push(slot, events);
    } else {
      slots_[last].next = slot;
    }
    last = slot;
  }

  /// Prefetches the message into the cache.
  void prefetch(size_t slot) const { __builtin_prefetch(&slots_[slot]); }

  /// Takes out the message whose event has come; the next one of its wire takes its place in the
  /// queue.
  Transit take(size_t slot, EventQueue& events) {
    const Transit message = slots_[slot].message;
    const uint32_t next = slots_[slot].next;
    if (next == kNone) {
      network_.last_waiting(message.wire) = kNone;
    } else {
      push(next, events);
    }
    free_.push_back(static_cast<uint32_t>(slot));
    return message;
  }

 private:
  static constexpr uint32_t kNone = Network::kNobody;
  struct Slot {
    Transit message;
    int64_t when_ns = 0;
    uint32_t next = kNone;
  };

  uint32_t new_slot() {
    if (free_.empty()) {
      slots_.emplace_back();
      return static_cast<uint32_t>(slots_.size() - 1);
    }
    const uint32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  void push(uint32_t slot, EventQueue& events) const {
    events.push(Event::of_message(slots_[slot].when_ns, slots_[slot].message.sender, slot));
  }

  Network& network_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
};

}  // namespace penstock::simulate::detail
