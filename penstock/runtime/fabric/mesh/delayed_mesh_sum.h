// Sums of updates over ranks by owners, with a bounded delay (delayed_sum.h): each shard has an
// owner, who keeps what every replica lacks, and answers each of them as soon as it may.
//
// Bytes are those of MeshSum: a replica that owns the share g sends (1 - g) M, and (n - 1) g M of
// results.
#pragma once

#include <vector>

#include "penstock/runtime/fabric/delayed_sum.h"
#include "penstock/runtime/fabric/mesh/mesh_sum.h"
#include "penstock/util/process/mutex.h"

namespace penstock::runtime {

class DelayedMeshSum : public MeshSum {
 public:
  /// `shares`: per replica, then per server.
  DelayedMeshSum(StageSumSetup setup, const std::vector<double>& shares, int64_t staleness);

 private:
  struct Owned {
    DelayedSum sum;
    std::vector<uint64_t> rounds;  ///< by replica: answered
  };

  void contribute(int replica, size_t shard, Contribution contribution) override;
  void add(int replica, size_t shard, const Contribution& contribution);

  Mutex mutex_;
  std::vector<Owned> owned_ GUARDED_BY(mutex_);  ///< by shard
};

}  // namespace penstock::runtime
