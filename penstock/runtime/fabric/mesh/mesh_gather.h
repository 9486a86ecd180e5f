// Gathers the stepped weights of one stage whose replicas are on several ranks, bucket by bucket,
// in the background: each replica sends the shards that it owns to all others. Internal to
// fabric/mesh.
//
// Steps: 1. Bytes that each of n replicas sends, with M bytes of weights: (n-1)/n M; with a
// reduce-scatter of the gradients before it (mesh_sum.h) the bytes of a ring all-reduce.
#pragma once

#include <vector>

#include "penstock/runtime/fabric/mesh/stage_sum.h"
#include "penstock/util/process/mutex.h"

namespace penstock::runtime {

class MeshGather : public StageSum {
 public:
  /// In float32, whatever the precision of the sums; shards of even_shares().
  explicit MeshGather(StageSumSetup setup);

  void begin() override {}
  /// Posts the receives of the replica's next round; before it starts the bucket's sum, without
  /// which nobody can have stepped weights for it.
  void post(int replica, size_t bucket);
  /// Fabric::start_gather(); the weights are the one group's.
  void start(int replica, size_t bucket, Partials weights) override;

 private:
  Mutex mutex_;
  /// By replica and bucket: of the latest post().
  std::vector<std::vector<uint64_t>> rounds_ GUARDED_BY(mutex_);
};

}  // namespace penstock::runtime
