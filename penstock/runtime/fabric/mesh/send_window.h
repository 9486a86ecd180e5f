// The gradients that a rank is sending: the most urgent shards first, a few at a time over all
// peers together, each peer getting shards in the proportion of what it is to get. All at once,
// every connection would get the same rate, and those to the owners of large shares would end last
// with the network half idle (the credits of ByteScheduler, SOSP 2019, and BytePS).
//
// Parts and results of the same urgency take turns in the proportion of their bytes
// (start-time fair queueing: Goyal, Vin and Cheng, SIGCOMM 1996). If the results waited for all
// parts, everybody would get them at the end, all at the same time. Internal to fabric/mesh.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <tuple>

#include "penstock/net/mesh.h"
#include "penstock/util/process/mutex.h"

namespace penstock::runtime {

/// Thread-safe.
class SendWindow : public std::enable_shared_from_this<SendWindow> {
 public:
  /// What a shard of gradients is.
  enum class Kind : uint8_t { Part, Result };
  /// Sends a message; returns its transfer.
  using Send = std::function<std::shared_ptr<net::Transfer>()>;

  explicit SendWindow(int64_t most_bytes) : most_bytes_(most_bytes) {}

  /// Calls `send` when less than the window's bytes are on their way: now, or later on the thread
  /// of the mesh. Messages of the highest urgency first; those of a kind in their order. `share`:
  /// of this kind among what is sent, above 0; both together are 1. Never blocks.
  void add(int urgency, Kind kind, double share, int64_t bytes, Send send);
  /// What waits is thrown away, now and later.
  void close();

 private:
  struct Waiting {
    int64_t bytes = 0;
    Send send;
  };
  /// Urgency, highest first; when it is its turn; then as they came.
  using Order = std::tuple<int, double, uint64_t>;
  /// Messages of one urgency, as long as some wait. Times are bytes over shares.
  struct Turns {
    size_t waiting = 0;
    double now = 0;
    std::array<double, 2> free{};  ///< by kind: the next one's turn
  };
  void send_next();

  int64_t most_bytes_;
  Mutex mutex_;
  std::map<Order, Waiting> waiting_ GUARDED_BY(mutex_);
  std::map<int, Turns> turns_ GUARDED_BY(mutex_);  ///< by urgency
  uint64_t next_ GUARDED_BY(mutex_) = 0;
  int64_t bytes_on_their_way_ GUARDED_BY(mutex_) = 0;
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace penstock::runtime
