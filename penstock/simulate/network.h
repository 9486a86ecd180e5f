// The wires between the workers and the waiting of messages for them; internal to the simulator.
//
// Each unit of the cluster below a level (a worker below the first, a server below the second...)
// has one wire up to that level and one down from it, at the level's bandwidth. ("Wire", because a
// link is a pair of stages in schedules.) A message passes the wires up from its sender to the
// lowest level that both workers share, and down to its receiver, by wire_rule.h (ties:
// event_queue.h): without other traffic it arrives (bytes / slowest bandwidth + latency) after it
// was sent.
// Bytes that pile up before a fast wire need only that wire's time. Levels by reference copy
// nothing between the workers that they join, but what goes further is copied through them, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "penstock/schedule/worker_table.h"
#include "penstock/simulate/values.h"

namespace penstock::simulate::detail {

/// How long `bytes` take at `bandwidth_bytes_per_s`, rounded up; 0 when the bandwidth is 0 (by
/// reference). Saturates.
int64_t transfer_ns(int64_t bytes, int64_t bandwidth_bytes_per_s);

/// A message on its way. `lane` is its number in the list that the network was made with; the
/// network reads neither `micro_batch` nor `replica`.
struct Transit {
  int64_t micro_batch = 0;
  int64_t end_ns = 0;  ///< when its last byte leaves the wires passed so far
  int32_t sender = 0;
  int32_t receiver = 0;
  int32_t lane = 0;
  int32_t replica = 0;  ///< of the stage that receives
  int32_t wire = 0;     ///< the last one passed or reserved
  int16_t levels = 0;   ///< between the two workers
  int16_t hop = 0;      ///< wires passed or reserved: 0 .. levels up, then down
};

class Network {
 public:
  static constexpr uint32_t kNobody = UINT32_MAX;

  /// `lane_bytes`: LinkTable::lane_bytes(). Throws ConfigError when the stages do not fit
  /// on the cluster or overlap.
  Network(const Costs& costs, const schedule::ScheduleShape& shape,
          const schedule::WorkerTable& table, const std::vector<int64_t>& lane_bytes);

  /// Wires between the two workers, in each direction.
  int16_t levels_between(int32_t sender, int32_t receiver) const;
  /// What a message of the lane takes from the computing of each of the two workers: half of what a
  /// sum of so many bytes takes (cluster::Level::processor_ns_per_gb), which a worker sends and
  /// receives, and half of what any message does.
  int64_t processor_ns(int32_t lane, int32_t sender, int32_t receiver) const {
    if (!takes_processor_time_ || sender == receiver) return 0;
    const auto level = static_cast<size_t>(levels_between(sender, receiver) - 1);
    return tolls_[static_cast<size_t>(lane) * latency_ns_.size() + level].processor_ns;
  }
  /// Takes the message on from `now_ns`, when its first byte reaches its next wire. Returns true
  /// when `when_ns` is its arrival, false when `message.wire` begins to serve it later, at
  /// `when_ns`: call again then. Calls must be in the order of their times. O(levels).
  bool advance(Transit& message, int64_t now_ns, int64_t& when_ns);

  /// The last of the messages that wait for the wire (WaitingMessages).
  uint32_t& last_waiting(int32_t wire) { return wires_[static_cast<size_t>(wire)].last_waiting; }

  /// How long all workers take to get the sum of one number from each worker: 2 * (sum over the
  /// levels of ceil(log2 n) * latency), where n is the largest number of used units that one unit
  /// of the level joins, and the latency is that of a message through the level. (A tree of 8-byte
  /// messages: up to one worker, and back.)
  int64_t sum_ns() const { return sum_ns_; }

 private:
  /// What a level costs the messages of one link.
  struct Toll {
    int64_t busy_ns = 0;       ///< how long a message occupies a wire of the level
    int64_t processor_ns = 0;  ///< of messages that go no higher
    /// Whether messages that go no higher than this level are copied; those that are not occupy no
    /// wire.
    bool copies = false;
  };
  struct Level {
    int unit_size = 1;   ///< workers in a unit below the level
    int joint_size = 0;  ///< workers in a unit of the level; 0: it joins all
    int64_t bandwidth_bytes_per_s = 0;
    bool copies = false;     ///< this level or one further in is not by reference
    int64_t latency_ns = 0;  ///< of messages that go no higher
    int64_t processor_ns_per_gb = 0;
    int64_t processor_ns_per_message = 0;
  };
  void add_level(size_t number, const Level& level, const std::vector<int>& places,
                 const std::vector<int64_t>& lane_bytes);
  int32_t up_wire(int32_t worker, size_t level) const {
    return up_[static_cast<size_t>(worker) * latency_ns_.size() + level];
  }

  // Levels that join nothing are left out.
  std::vector<int64_t> latency_ns_;  ///< per level, innermost first
  /// Per worker and level, the wire up of its unit below the level; the one down is the next
  /// number.
  std::vector<int32_t> up_;
  std::vector<Toll> tolls_;  ///< per link and level
  bool takes_processor_time_ = false;
  struct Wire {
    int64_t free_ns = 0;  ///< when it has served all that has reached it
    uint32_t last_waiting = kNobody;
  };
  std::vector<Wire> wires_;
  int64_t sum_ns_ = 0;
};

}  // namespace penstock::simulate::detail
