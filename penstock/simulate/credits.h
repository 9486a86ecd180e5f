// How many messages a channel may hold before its sender waits; internal to the simulator. A
// channel leads from one worker to another in one direction, activations or gradients.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <utility>

namespace penstock::simulate::detail {

class Credits {
 public:
  /// `most_in_channel`: with this many credits or more no sender ever waits, and nothing is stored.
  Credits(int64_t credits, int64_t most_in_channel)
      : credits_(credits), limited_(credits > 0 && credits < most_in_channel) {}

  /// False when the next message cannot leave yet: `taken` will name the sender once it can.
  /// Otherwise `leave_ns` rises to the time at which its credit is free.
  bool acquire(int32_t sender, int32_t receiver, bool backward, int64_t& leave_ns) {
    if (!limited_) return true;
    Channel& channel = channel_of(sender, receiver, backward);
    if (channel.sent < credits_) return true;
    const int64_t freeing = channel.sent - credits_;
    for (; channel.first_taken < freeing && !channel.taken_ns.empty(); ++channel.first_taken)
      channel.taken_ns.pop_front();
    if (channel.taken_ns.empty()) {
      channel.waiting_sender = sender;
      return false;
    }
    leave_ns = std::max(leave_ns, channel.taken_ns.front());
    return true;
  }

  void sent(int32_t sender, int32_t receiver, bool backward) {
    if (limited_) ++channel_of(sender, receiver, backward).sent;
  }

  /// A message has been taken out; returns the sender that waited for that, or -1.
  int32_t taken(int32_t sender, int32_t receiver, bool backward, int64_t taken_ns) {
    if (!limited_) return -1;
    Channel& channel = channel_of(sender, receiver, backward);
    channel.taken_ns.push_back(taken_ns);
    return std::exchange(channel.waiting_sender, -1);
  }

 private:
  struct Channel {
    int64_t sent = 0;
    int64_t first_taken = 0;  ///< number of the message that taken_ns begins with
    std::deque<int64_t> taken_ns;
    int32_t waiting_sender = -1;
  };
  Channel& channel_of(int32_t sender, int32_t receiver, bool backward) {
    return channels_[static_cast<uint64_t>(sender) << 32 | static_cast<uint64_t>(receiver) << 1 |
                     (backward ? 1 : 0)];
  }

  int64_t credits_;
  bool limited_;
  std::unordered_map<uint64_t, Channel> channels_;
};

}  // namespace penstock::simulate::detail
