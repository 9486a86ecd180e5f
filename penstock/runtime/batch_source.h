// The source of the workers' micro-batches.
#pragma once

#include <cstdint>

#include "penstock/model/layer.h"
#include "penstock/util/ids.h"

namespace penstock::runtime {

/// Thread-safe: the workers of the input stages and of the output stages call it at the same time.
/// Ids count from 0 in each run.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  /// One tensor per model input, each [samples, ...] float32.
  virtual model::Tensors inputs(MicroBatchId micro_batch) const = 0;
  /// [samples] int64.
  virtual at::Tensor targets(MicroBatchId micro_batch) const = 0;
  virtual int64_t samples(MicroBatchId micro_batch) const = 0;
  virtual int64_t mini_batch_samples(MiniBatchId mini_batch) const = 0;
  /// Seed of the micro-batch for random layers: the same under every schedule.
  virtual uint64_t seed(MicroBatchId micro_batch) const = 0;
};

}  // namespace penstock::runtime
