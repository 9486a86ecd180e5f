// The wires between the workers and what messages wait for on them; internal to the simulator.
//
// Each unit of the cluster below a level (a worker below the first, a server below the second...) has one wire up to that level and one
// down from it, at the level's bandwidth. ("Wire", because a link is a pair of stages in schedules.) A message passes the wires up from its
// sender to the lowest level that both workers share, and down to its receiver. A wire serves messages one after the other, in the order in
// which their first byte reaches it. A message that is being served flows on to its next wire at once (cut-through): where nothing else is
// under way it arrives bytes / slowest bandwidth + latency after it was sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "penstock/schedule/worker_table.h"
#include "penstock/simulate/simulator.h"

namespace penstock::simulate::detail {

/// How long `bytes` take at `bandwidth_bytes_per_s`, rounded up; 0 when the bandwidth is 0 (by reference). Saturates.
int64_t transfer_ns(int64_t bytes, int64_t bandwidth_bytes_per_s);

/// A message on its way. `link` is its number in the list that the network was made with.
struct Transit {
  int32_t sender = 0;
  int32_t receiver = 0;
  int32_t link = 0;
  int32_t levels = 0;  ///< between the two workers
  int32_t hop = 0;     ///< wires passed or reserved: 0 .. levels up, then down
  int32_t wire = 0;    ///< the last of them
  int64_t end_ns = 0;  ///< when its last byte leaves the wires passed so far
};

class Network {
 public:
  /// `link_bytes`: bytes of a message of each link. Throws ConfigError when the stages do not fit on the cluster or overlap.
  Network(const Costs& costs, const schedule::WorkerTable& table, const std::vector<int64_t>& link_bytes);

  /// A message of the link that has not reached its first wire.
  Transit start(int32_t sender, int32_t receiver, int32_t link) const;
  size_t num_wires() const { return free_ns_.size(); }
  /// Takes the message on from `now_ns`, when its first byte stands before its next wire. Returns true when `when_ns` is its arrival, false
  /// when `message.wire` begins to serve it later, at `when_ns`: call again then. Calls must come in the order of their times. O(levels).
  bool advance(Transit& message, int64_t now_ns, int64_t& when_ns);

 private:
  /// One level that joins anything.
  struct Joint {
    std::vector<int32_t> up;        ///< per worker, the wire up of its unit below this level; the one down is the next number
    std::vector<int64_t> busy_ns;   ///< per link, how long a message occupies a wire
    std::vector<int64_t> whole_ns;  ///< per link, from first to last byte for messages that come no higher; 0: nothing is moved
    int64_t latency_ns = 0;         ///< of messages that come no higher
  };
  void add_joint(const std::vector<int>& places, int unit_size, const std::vector<int64_t>& link_bytes, int64_t bandwidth_bytes_per_s,
                 int64_t path_bandwidth_bytes_per_s, int64_t latency_ns);

  std::vector<Joint> joints_;     ///< innermost first
  std::vector<int64_t> free_ns_;  ///< per wire, when it has served all that has reached it
};

}  // namespace penstock::simulate::detail
