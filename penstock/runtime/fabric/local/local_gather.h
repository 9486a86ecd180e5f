// Gathers stepped weights between the replicas of one stage in shared memory: each replica copies
// the shares of the others out of their tensors, unless these are in the same memory. 2 barriers;
// each of r replicas reads and writes (r - 1) / r of the weights' bytes. Internal to runtime.
#pragma once

#include <utility>
#include <vector>

#include "penstock/model/layer.h"
#include "penstock/runtime/fabric/local/barrier.h"
#include "penstock/runtime/fabric/wait.h"
#include "penstock/runtime/fabric/weight_shares.h"

namespace penstock::runtime {

/// Thread-safe. The weights are one bucket.
class LocalGather {
 public:
  /// `shares`: per replica.
  explicit LocalGather(std::vector<WeightShare> shares)
      : shares_(std::move(shares)),
        barrier_(static_cast<int>(shares_.size())),
        weights_(shares_.size()) {}

  /// Fabric::start_gather() and finish_gather() of the stage. After a timeout it is closed.
  void start(int replica, model::Tensors weights) {
    weights_[static_cast<size_t>(replica)] = std::move(weights);
  }
  WaitResult finish(int replica, Wait& wait);
  /// Wakes everybody; all later calls return Closed.
  void close() { barrier_.close(); }

 private:
  std::vector<WeightShare> shares_;
  Barrier barrier_;
  /// Each replica writes its own list: fills it before the first barrier and empties it after the
  /// second. In between all read all, and each writes only parts of its own tensors that nobody
  /// reads.
  std::vector<model::Tensors> weights_;
};

}  // namespace penstock::runtime
