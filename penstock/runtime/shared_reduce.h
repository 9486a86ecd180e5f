// Sums gradients over the replicas of one stage in shared memory: a reduce-scatter into the first replica's tensors (each replica sums its
// own slice, in replica order, so that results do not depend on timing), then everybody reads them by reference. 2 barriers; each replica
// reads (r-1)/r and writes 1/r of the gradient bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/runtime/tensor_exchange.h"
#include "penstock/util/mutex.h"

namespace penstock::runtime {

/// Thread-safe; one object per replicated stage.
class SharedReduce {
 public:
  explicit SharedReduce(int replicas) : replicas_(replicas), contributions_(static_cast<size_t>(replicas)) {}

  /// Replaces `gradients` by the sum over all replicas; undefined tensors count as zero and stay undefined if undefined everywhere. The
  /// sum is shared between the replicas and must not be written to. Blocks until all replicas are here; adds the time spent waiting for
  /// them to `waiting_ns`.
  WaitResult run(int replica, model::Tensors& gradients, CondVar::Deadline deadline, int64_t& waiting_ns);
  void close();

 private:
  WaitResult barrier(CondVar::Deadline deadline, int64_t& waiting_ns);

  int replicas_;
  Mutex mutex_;
  CondVar changed_;
  int arrived_ GUARDED_BY(mutex_) = 0;
  int64_t generation_ GUARDED_BY(mutex_) = 0;
  bool closed_ GUARDED_BY(mutex_) = false;
  std::vector<model::Tensors*> contributions_;  ///< written before the first barrier, read after it
};

}  // namespace penstock::runtime
