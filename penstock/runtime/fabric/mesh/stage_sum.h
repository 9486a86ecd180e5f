// The sum of the gradients of one stage whose replicas are on several ranks, bucket by bucket, in
// the background: what the methods of plan/gradient_sync.h have in common. Internal to fabric/mesh.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "penstock/model/layer.h"
#include "penstock/net/mesh.h"
#include "penstock/runtime/fabric/mesh/send_window.h"
#include "penstock/runtime/fabric/mesh/sum_service.h"
#include "penstock/runtime/fabric/partials.h"
#include "penstock/runtime/fabric/wait.h"

namespace penstock::runtime {

/// What one rank has to know of a stage's sum; all but the services is the same on every rank.
struct StageSumSetup {
  net::Mesh& mesh;
  std::shared_ptr<SumService> service;
  std::shared_ptr<SendWindow> window;
  uint32_t run = 0;
  uint32_t first_channel = 0;
  std::vector<int> rank_of_replica;
  std::vector<int> rank_of_server;   ///< those that add gradients only
  std::vector<model::Shape> shapes;  ///< of the weights
  std::vector<size_t> bucket_ends;   ///< gradient_shards.h

  bool is_here(int replica) const {
    return rank_of_replica[static_cast<size_t>(replica)] == mesh.rank();
  }
};

/// Buckets that the next forward pass needs first go first, behind all messages. (Results before
/// parts is slower: parts then come late to owners who wait for them.)
inline int gradient_urgency(size_t bucket) { return -1 - static_cast<int>(bucket); }

/// Of each weight of a bucket, the gradient of the first group that has one.
inline model::Tensors first_gradients(const Partials& partials, size_t count) {
  model::Tensors first(count);
  for (const GroupGradients& group : partials) {
    for (size_t i = 0; i < count; ++i) {
      if (!first[i].defined()) first[i] = group.sums[i];
    }
  }
  return first;
}

/// Thread-safe. Each replica starts every bucket once per round, and finishes it before it starts
/// it again.
class StageSum {
 public:
  virtual ~StageSum() = default;
  StageSum() = default;
  StageSum(const StageSum&) = delete;
  StageSum& operator=(const StageSum&) = delete;

  /// How many channels one uses.
  static uint32_t channels(size_t replicas) { return static_cast<uint32_t>(2 * replicas); }

  /// Posts the first receives; once, on every rank.
  virtual void begin() = 0;
  /// Fabric::start_sum() and finish_sum().
  virtual void start(int replica, size_t bucket, Partials partials) = 0;
  virtual WaitResult finish(int replica, size_t bucket, model::Tensors& sums, Wait& wait) = 0;
  /// Wakes everybody; all later calls return Closed.
  virtual void close() = 0;
};

}  // namespace penstock::runtime
