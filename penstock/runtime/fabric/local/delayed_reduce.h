// Sums the updates of the replicas of one stage in shared memory, with a bounded delay.
#pragma once

#include "penstock/runtime/fabric/delayed_sum.h"
#include "penstock/runtime/fabric/local/local_sum.h"
#include "penstock/util/process/mutex.h"

namespace penstock::runtime {

/// The replica that starts adds, while the others wait for the lock. Partials: one group of
/// updates, or kLastUpdate.
class DelayedReduce : public LocalSum {
 public:
  DelayedReduce(int replicas, size_t count, int64_t staleness)
      : LocalSum(count), sum_(replicas, count, staleness) {}

  void start(int replica, Partials partials) override;
  WaitResult finish(int replica, model::Tensors& sums, Wait& wait) override;
  void close() override;

 private:
  Mutex mutex_;
  CondVar changed_;
  DelayedSum sum_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace penstock::runtime
