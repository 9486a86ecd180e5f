// What a model makes of samples: its outputs, gathered from the ranks that have them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <vector>

#include "penstock/model/loss.h"
#include "penstock/runtime/ranks.h"
#include "penstock/train/data/epoch_batches.h"
#include "penstock/util/process/mutex.h"

namespace penstock::train {

/// Batches whose targets are the numbers of their samples, for Predictions. Keeps references.
class NumberedBatches final : public EpochBatches {
 public:
  NumberedBatches(const Dataset& data, const std::vector<int64_t>& order, const BatchCut& cut)
      : EpochBatches(data, order, 0, cut, 0, Lengths::Batch), numbered_(cut) {}

  at::Tensor targets(MicroBatchId b) const override;
  int64_t mini_batch_targets(MiniBatchId t) const override { return mini_batch_samples(t); }

 private:
  BatchCut numbered_;
};

/// Must live until the run has ended. Thread-safe.
class Predictions {
 public:
  /// RunOptions::loss: keeps the outputs, as float32 or int64.
  model::Loss keep();
  /// The outputs of all samples in their order, on every rank. Collective; blocks until all have
  /// called it.
  at::Tensor of_all(const runtime::Ranks& ranks) const;

 private:
  mutable Mutex mutex_;
  std::map<int64_t, at::Tensor> outputs_ GUARDED_BY(mutex_);  ///< by their first sample
};

}  // namespace penstock::train
