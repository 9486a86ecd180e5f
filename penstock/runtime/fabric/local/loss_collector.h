// Collects losses from the workers of the output stage. Those of a mini-batch are added up in the
// order of its micro-batches.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "penstock/runtime/fabric/mini_batch_stats.h"
#include "penstock/util/ids.h"
#include "penstock/util/process/mutex.h"

namespace penstock::runtime {

/// Thread-safe.
class LossCollector {
 public:
  using Done = std::function<void(MiniBatchId, const MiniBatchStats&)>;
  /// `mini_batches`: so many are kept for take(), the first ones. `done` is called, one call at a
  /// time, when all samples of a mini-batch are there.
  LossCollector(int64_t mini_batches, std::function<int64_t(MiniBatchId)> samples_of, Done done);

  void add(MiniBatchId mini_batch, MicroBatchId micro_batch, const MiniBatchStats& part);
  void set_norm(MiniBatchId mini_batch, double norm);
  /// The first `count` mini-batches.
  std::vector<MiniBatchStats> take(int64_t count);

 private:
  struct Open {
    std::map<MicroBatchId, MiniBatchStats> parts;
    int64_t samples = 0;
  };
  static MiniBatchStats sum_of(const Open& open);
  void keep(MiniBatchId mini_batch, const MiniBatchStats& sum) REQUIRES(mutex_);

  std::function<int64_t(MiniBatchId)> samples_of_;
  Done done_;
  Mutex mutex_;
  std::vector<MiniBatchStats> stats_ GUARDED_BY(mutex_);
  std::map<MiniBatchId, Open> open_ GUARDED_BY(mutex_);  ///< not all samples are there
};

}  // namespace penstock::runtime
