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
  /// With a precision of 16 bits nothing is halved here, but the sums are the same as between ranks
  /// (plan/sync_precision.h).
  SharedReduce(int replicas, size_t count, FloatType precision = FloatType::Float32)
      : LocalSum(count),
        replicas_(replicas),
        precision_(precision),
        barrier_(replicas),
        contributions_(static_cast<size_t>(replicas)) {}

  /// The sums are shared between the replicas. Unless finish() returns Ready, the partials live on
  /// as long as this object: others may be reading them. After a timeout the object is closed.
  void start(int replica, Partials partials) override;
  WaitResult finish(int replica, model::Tensors& sums, Wait& wait) override;
  void close() override { barrier_.close(); }

 private:
  /// The numbers [begin, begin + length) of one weight: sum += part.
  void add(const at::Tensor& sum, const at::Tensor& part, int64_t begin, int64_t length) const;
  void round(const at::Tensor& sum, int64_t begin, int64_t length) const;

  int replicas_;
  FloatType precision_;
  Barrier barrier_;
  /// Each replica writes its own: fills it before the first barrier and empties it after the
  /// second. In between all read all.
  std::vector<Partials> contributions_;
};

}  // namespace penstock::runtime
