// What the replicas of one stage hand to each other, each to each, in the memory of GPUs: within
// the process by copies that wait for events, between ranks by links (device_links.h). Internal to
// runtime.
//
//   exchange.exchange(replica, std::move(leaving), places, meet);   // on the thread of each
//   replica
//
// Each pair of replicas moves its bytes once, directly: with n replicas, and a vector of M bytes
// cut into n parts, a reduce-scatter or an all-gather moves M (n - 1) / n bytes into and out of
// each GPU.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "penstock/runtime/device/device_links.h"
#include "penstock/runtime/device/worker_device.h"
#include "penstock/util/process/mutex.h"

namespace penstock::runtime {

/// Thread-safe: each replica of this rank calls it from its own thread.
class ReplicaExchange {
 public:
  /// `workers` and `devices`: by replica, devices null for those of other ranks, to which `links`
  /// go. Several replicas share a process iff `meets`, on whichever rank.
  ReplicaExchange(StageId stage, std::vector<WorkerId> workers, std::vector<WorkerDevice*> devices,
                  DeviceLinks* links, bool meets);

  size_t replicas() const { return workers_.size(); }

  using PerReplica = std::vector<model::Tensors>;
  /// Gives `leaving[q]` to replica q and brings what q gives into `places[q]`: as many tensors, of
  /// the same sizes and types, contiguous, each in memory that its device has allocated as its
  /// compute stream's. Both are empty for the replica itself. Later work of the replica's device
  /// finds them there; the host waits for no GPU. What leaves must not be written
  /// to before the caller's device waits for work that q's gave after its own exchange().
  /// `meet`: blocks until every replica of the stage has called it.
  void exchange(int replica, PerReplica leaving, const PerReplica& places,
                const std::function<void()>& meet);

 private:
  struct Post {
    PerReplica leaving;
    model::EventPtr made;
  };

  StageId stage_;
  std::vector<WorkerId> workers_;
  std::vector<WorkerDevice*> devices_;
  DeviceLinks* links_;
  bool meets_;
  Mutex mutex_;
  /// By replica: of its last two exchanges, in turn. A replica that comes to its next one meets the
  /// others there, so that nobody reads the one before any more.
  std::vector<std::array<Post, 2>> posts_ GUARDED_BY(mutex_);
  std::vector<size_t> rounds_ GUARDED_BY(mutex_);
};

}  // namespace penstock::runtime
