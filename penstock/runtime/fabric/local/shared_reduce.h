// Sums gradients over the replicas of one stage in shared memory: a reduce-scatter into the first
// group's tensors (each replica sums its own slice, in the order of the groups, so that results
// depend neither on timing nor on the number of replicas), then everybody reads them by reference.
// 2 barriers; with G groups over r replicas each replica reads G / r and writes 1 / r of the
// gradient's bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/runtime/fabric/local/barrier.h"
#include "penstock/runtime/fabric/local/local_sum.h"
#include "penstock/runtime/fabric/partials.h"

namespace penstock::runtime {

class SharedReduce : public LocalSum {
 public:
  SharedReduce(int replicas, size_t count)
      : LocalSum(count),
        replicas_(replicas),
        barrier_(replicas),
        contributions_(static_cast<size_t>(replicas)) {}

  /// The sums are shared between the replicas. Unless finish() returns Ready, the partials live on
  /// as long as this object: others may be reading them. After a timeout the object is closed.
  void start(int replica, Partials partials) override;
  WaitResult finish(int replica, model::Tensors& sums, Wait& wait) override;
  void close() override { barrier_.close(); }

 private:
  int replicas_;
  Barrier barrier_;
  /// Each replica writes its own: fills it before the first barrier and empties it after the
  /// second. In between all read all.
  std::vector<Partials> contributions_;
};

}  // namespace penstock::runtime
