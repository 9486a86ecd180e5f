// Cuts a sequence of samples into mini-batches and micro-batches, and gives them to the workers.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "penstock/runtime/batch_source.h"
#include "penstock/train/data/dataset.h"
#include "penstock/train/data/lengths.h"
#include "penstock/util/process/mutex.h"

namespace penstock::train {

/// How `samples` samples are cut: mini-batches of `mini_batch_size` (the last may be smaller), each
/// into `micro_batches` parts whose sizes differ by at most one sample; a smaller last mini-batch
/// has fewer parts, not smaller ones. Pure arithmetic.
struct BatchCut {
  int64_t samples = 0;
  int64_t mini_batch_size = 1;
  int64_t micro_batches = 1;  ///< per full mini-batch; at most mini_batch_size

  BatchCut(int64_t samples, int64_t mini_batch_size, int64_t micro_batches);

  int64_t num_mini_batches() const;
  int64_t num_micro_batches() const;
  int64_t mini_batch_samples(MiniBatchId t) const;
  /// First sample and end of micro-batch b.
  struct Range {
    int64_t begin;
    int64_t end;
  };
  Range range(MicroBatchId b) const;
};

/// The part of an epoch from sample `first` on, in the epoch's order. Keeps references;
/// thread-safe.
class EpochBatches : public runtime::BatchSource {
 public:
  EpochBatches(const Dataset& data, const std::vector<int64_t>& order, int64_t first,
               const BatchCut& cut, uint64_t seed, Lengths lengths = Lengths::Whole)
      : data_(data), order_(order), first_(first), cut_(cut), seed_(seed), lengths_(lengths) {}

  model::Tensors inputs(MicroBatchId b) const override;
  model::Tensors inputs_for_transfer(MicroBatchId b) const override;
  /// Where the model counts the targets among its inputs: their number.
  at::Tensor targets(MicroBatchId b) const override;
  int64_t samples(MicroBatchId b) const override;
  std::vector<model::Shape> input_shapes(MicroBatchId b) const override;
  int64_t mini_batch_samples(MiniBatchId t) const override { return cut_.mini_batch_samples(t); }
  int64_t mini_batch_targets(MiniBatchId t) const override;
  int64_t micro_batch_targets(MicroBatchId b) const override;
  uint64_t seed(MicroBatchId b) const override;

 private:
  std::vector<int64_t> indices(const BatchCut::Range& range) const;
  std::vector<int64_t> indices_of(MiniBatchId t) const;
  /// What its samples are padded to: of each input, and of the targets.
  std::vector<model::Shape> sizes_of(MicroBatchId b) const;

  const Dataset& data_;
  const std::vector<int64_t>& order_;
  int64_t first_;
  BatchCut cut_;
  uint64_t seed_;
  Lengths lengths_;
  mutable Mutex mutex_;
  /// The targets of mini-batches, which each of its micro-batches asks for.
  mutable std::map<MiniBatchId, int64_t> counted_ GUARDED_BY(mutex_);
  mutable std::map<MicroBatchId, int64_t> counted_parts_ GUARDED_BY(mutex_);
  mutable std::map<MiniBatchId, std::vector<model::Shape>> sizes_ GUARDED_BY(mutex_);
};

}  // namespace penstock::train
