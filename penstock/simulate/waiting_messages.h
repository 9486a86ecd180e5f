// Messages that wait for a wire of the network, in the order in which it will serve them; internal to the simulator. Only the first of each
// wire is in the event queue, which so stays small however long the queues before the wires are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "penstock/simulate/event_queue.h"
#include "penstock/simulate/network.h"

namespace penstock::simulate::detail {

/// A message on its way, and where it goes in the end.
struct Underway {
  Transit transit;
  int64_t micro_batch = 0;
  size_t mailbox = 0;
};

class WaitingMessages {
 public:
  explicit WaitingMessages(size_t num_wires) : last_(num_wires, kNone) {}

  /// The message's wire begins to serve it at `when_ns`, not before those that were added earlier. Its event is put into the queue when it
  /// is the first of its wire.
  void add(const Underway& message, int64_t when_ns, EventQueue& events) {
    const uint32_t slot = new_slot();
    slots_[slot] = {message, when_ns, kNone};
    uint32_t& last = last_[static_cast<size_t>(message.transit.wire)];
    if (last == kNone) {
      push(slot, events);
    } else {
      slots_[last].next = slot;
    }
    last = slot;
  }

  /// The message whose event has come; the next one of its wire takes its place in the queue.
  Underway take(size_t slot, EventQueue& events) {
    const Underway message = slots_[slot].message;
    const uint32_t next = slots_[slot].next;
    if (next == kNone) {
      last_[static_cast<size_t>(message.transit.wire)] = kNone;
    } else {
      push(next, events);
    }
    free_.push_back(static_cast<uint32_t>(slot));
    return message;
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Slot {
    Underway message;
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
    events.push(Event::of_message(slots_[slot].when_ns, slots_[slot].message.transit.sender, slot));
  }

  std::vector<uint32_t> last_;  ///< per wire
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
};

}  // namespace penstock::simulate::detail
