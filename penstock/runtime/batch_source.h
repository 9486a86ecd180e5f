// The source of the workers' micro-batches.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/model/device/staging.h"
#include "penstock/model/layer.h"
#include "penstock/model/loss.h"
#include "penstock/util/ids.h"

namespace penstock::runtime {

/// Thread-safe: the workers of the input stages and of the output stages call it at the same time.
/// Ids count from 0 in each run.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  /// One tensor per model input, each [samples, ...] of the input's type.
  virtual model::Tensors inputs(MicroBatchId micro_batch) const = 0;
  /// The same in memory from which GPUs copy without blocking (model/device/staging.h). Default: a
  /// copy there.
  virtual model::Tensors inputs_for_transfer(MicroBatchId micro_batch) const {
    return model::staged_for_transfer(inputs(micro_batch));
  }
  /// As the loss takes them; undefined where it reads none.
  virtual at::Tensor targets(MicroBatchId micro_batch) const = 0;
  virtual int64_t samples(MicroBatchId micro_batch) const = 0;
  /// Shapes of one sample of each input, where sequences are shorter than the model's inputs, or
  /// longer; every rank gives the same. Default: none, the model's own.
  virtual std::vector<model::Shape> input_shapes(MicroBatchId) const { return {}; }
  virtual int64_t mini_batch_samples(MiniBatchId mini_batch) const = 0;
  /// Targets that count, as model::MiniBatchSize. Default: one per sample.
  virtual int64_t mini_batch_targets(MiniBatchId mini_batch) const {
    return mini_batch_samples(mini_batch);
  }
  /// The same of one micro-batch.
  virtual int64_t micro_batch_targets(MicroBatchId micro_batch) const {
    return samples(micro_batch);
  }
  model::MiniBatchSize size_of(MiniBatchId mini_batch) const {
    return {.samples = mini_batch_samples(mini_batch), .targets = mini_batch_targets(mini_batch)};
  }
  /// Endless runs: whether the next micro-batch is there.
  enum class Next : uint8_t {
    Ready,
    NotYet,  ///< ask again
    Ended,   ///< there is none and there will be none: the run ends with the one before
  };
  /// Endless runs only, from the worker of the first stage, once for each micro-batch in their
  /// order until it is Ready: waits a short while (50 ms or so) for it. May throw: the source is
  /// broken.
  virtual Next next(MicroBatchId) { return Next::Ended; }
  /// Seed of the micro-batch for random layers: the same under every schedule.
  virtual uint64_t seed(MicroBatchId micro_batch) const = 0;
};

}  // namespace penstock::runtime
