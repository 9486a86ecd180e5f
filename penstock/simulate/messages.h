// Pairs the sends and receives of a lowered schedule, once, so that the simulator's loop only indexes arrays; internal to the simulator.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/schedule/schedule.h"
#include "penstock/simulate/simulator.h"

namespace penstock::simulate::detail {

/// One message: its send and, when the schedule has one, its receive.
struct Message {
  int32_t sender = -1;    ///< worker, -1 when nobody sends it
  int32_t receiver = -1;  ///< worker, -1 when nobody receives it
  int32_t channel = -1;
  int64_t transfer_ns = 0;
};

/// Everything that the simulation looks up per action.
struct MessageTable {
  std::vector<Message> messages;
  /// Index of each worker's first action in `slot`.
  std::vector<int64_t> first_action;
  /// Per action: the message (sends, receives), the sync group (SYNC), -1 otherwise.
  std::vector<int32_t> slot;
  /// Channels are ordered pairs of workers and a direction; `channel_begin[c]` .. `channel_begin[c + 1]` has room for one entry per
  /// message.
  std::vector<int64_t> channel_begin;
  /// Replicas that each sync group waits for.
  std::vector<int32_t> group_size;
};

/// The k-th send of (direction, stages, micro-batch) meets the k-th receive of it, workers ascending. O(actions * log messages).
MessageTable pair_messages(const schedule::Schedule& schedule, const Costs& costs);

}  // namespace penstock::simulate::detail
