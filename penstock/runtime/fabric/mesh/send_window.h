// The gradients that a rank is sending: the most urgent shards first, a few at a time over all
// peers together, each peer getting shards in the proportion of what it is to get. All at once,
// every connection would get the same rate, and those to the owners of large shares would end last
// with the network half idle (the credits of ByteScheduler, SOSP 2019, and BytePS). Internal to
// fabric/mesh.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "penstock/net/mesh.h"
#include "penstock/util/mutex.h"

namespace penstock::runtime {

/// Thread-safe.
class SendWindow : public std::enable_shared_from_this<SendWindow> {
 public:
  /// Sends a message; returns its transfer.
  using Send = std::function<std::shared_ptr<net::Transfer>()>;

  explicit SendWindow(int64_t most_bytes) : most_bytes_(most_bytes) {}

  /// Calls `send` when less than the window's bytes are on their way: now, or later on the thread
  /// of the mesh. Messages of the highest urgency first, then in their order. Never blocks.
  void add(int urgency, int64_t bytes, Send send);
  /// What waits is thrown away, now and later.
  void close();

 private:
  struct Waiting {
    int64_t bytes = 0;
    Send send;
  };
  void send_next();

  int64_t most_bytes_;
  Mutex mutex_;
  std::map<std::pair<int, uint64_t>, Waiting> waiting_ GUARDED_BY(mutex_);
  uint64_t next_ GUARDED_BY(mutex_) = 0;
  int64_t bytes_on_their_way_ GUARDED_BY(mutex_) = 0;
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace penstock::runtime
