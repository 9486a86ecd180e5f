// The sums over the replicas of one stage in one process. Internal to runtime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "penstock/plan/sync_precision.h"
#include "penstock/runtime/fabric/partials.h"
#include "penstock/runtime/fabric/wait.h"

namespace penstock::runtime {

/// Thread-safe. The weights are one bucket.
class LocalSum {
 public:
  /// `count` tensors.
  explicit LocalSum(size_t count) : bucket_ends_{count} {}
  virtual ~LocalSum() = default;
  LocalSum(const LocalSum&) = delete;
  LocalSum& operator=(const LocalSum&) = delete;

  /// Fabric::start_sum() and finish_sum() of the stage.
  virtual void start(int replica, Partials partials) = 0;
  virtual WaitResult finish(int replica, model::Tensors& sums, Wait& wait) = 0;
  /// Wakes everybody; all later calls return Closed.
  virtual void close() = 0;

  const std::vector<size_t>& bucket_ends() const { return bucket_ends_; }
  size_t count() const { return bucket_ends_.front(); }

 private:
  std::vector<size_t> bucket_ends_;
};

std::unique_ptr<LocalSum> make_local_sum(plan::GradientSync sync, int replicas, size_t count,
                                         int64_t staleness, FloatType precision);

}  // namespace penstock::runtime
