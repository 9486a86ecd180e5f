#include "penstock/train/data/epoch_batches.h"

#include <ATen/ops/scalar_tensor.h>

#include <algorithm>

#include "penstock/model/device/staging.h"
#include "penstock/util/check.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::train {

namespace {

/// Parts of the last, shorter mini-batch: as many as are needed to keep the size of the other
/// parts.
int64_t last_parts(const BatchCut& cut) {
  const int64_t rest = cut.samples % cut.mini_batch_size;
  return rest == 0 ? 0
                   : std::min(cut.micro_batches,
                              ceil_div(rest, ceil_div(cut.mini_batch_size, cut.micro_batches)));
}

}  // namespace

BatchCut::BatchCut(int64_t s, int64_t g, int64_t m)
    : samples(s), mini_batch_size(g), micro_batches(std::min(m, g)) {
  PENSTOCK_CHECK(s >= 0 && g >= 1 && m >= 1, s, g, m);
}

int64_t BatchCut::num_mini_batches() const { return ceil_div(samples, mini_batch_size); }

int64_t BatchCut::num_micro_batches() const {
  return samples / mini_batch_size * micro_batches + last_parts(*this);
}

int64_t BatchCut::mini_batch_samples(MiniBatchId t) const {
  return std::min(mini_batch_size, samples - t.value * mini_batch_size);
}

BatchCut::Range BatchCut::range(MicroBatchId b) const {
  const int64_t t = b.value / micro_batches;
  const int64_t j = b.value % micro_batches;
  const int64_t n = mini_batch_samples(MiniBatchId{t});
  const int64_t parts = n == mini_batch_size ? micro_batches : last_parts(*this);
  PENSTOCK_CHECK(j < parts, b, parts);
  return {t * mini_batch_size + n * j / parts, t * mini_batch_size + n * (j + 1) / parts};
}

std::vector<int64_t> EpochBatches::indices(const BatchCut::Range& range) const {
  return {order_.begin() + first_ + range.begin, order_.begin() + first_ + range.end};
}

std::vector<int64_t> EpochBatches::indices_of(MiniBatchId t) const {
  const int64_t begin = t.value * cut_.mini_batch_size;
  return indices({begin, begin + cut_.mini_batch_samples(t)});
}

std::vector<model::Shape> EpochBatches::sizes_of(MicroBatchId b) const {
  // Of the whole mini-batch, so that they depend neither on the cut nor on the replicas.
  const MiniBatchId t{b.value / cut_.micro_batches};
  const MutexLock lock(mutex_);
  const auto [place, is_new] = sizes_.try_emplace(t);
  if (is_new) place->second = data_.filled(indices_of(t));
  return place->second;
}

std::vector<model::Shape> EpochBatches::input_shapes(MicroBatchId b) const {
  if (lengths_ == Lengths::Whole) return {};
  std::vector<model::Shape> sizes = sizes_of(b);
  sizes.pop_back();
  return sizes;
}

model::Tensors EpochBatches::inputs(MicroBatchId b) const {
  model::Tensors inputs = data_.inputs(indices(cut_.range(b)));
  if (lengths_ == Lengths::Whole) return inputs;
  const std::vector<model::Shape> sizes = sizes_of(b);
  for (size_t i = 0; i < inputs.size(); ++i) inputs[i] = cut_to(inputs[i], sizes[i]);
  return inputs;
}

model::Tensors EpochBatches::inputs_for_transfer(MicroBatchId b) const {
  if (lengths_ != Lengths::Whole && sizes_of(b) != train::sizes_of(data_.sample()))
    return model::staged_for_transfer(inputs(b));
  return data_.inputs_for_transfer(indices(cut_.range(b)));
}

at::Tensor EpochBatches::targets(MicroBatchId b) const {
  const std::vector<int64_t> samples = indices(cut_.range(b));
  if (data_.sample().count_targets)
    return at::scalar_tensor(data_.count_targets(samples), at::kLong);
  const at::Tensor targets = data_.targets(samples);
  return lengths_ == Lengths::Whole ? targets : cut_to(targets, sizes_of(b).back());
}

int64_t EpochBatches::mini_batch_targets(MiniBatchId t) const {
  const MutexLock lock(mutex_);
  const auto [place, is_new] = counted_.try_emplace(t);
  if (is_new) place->second = data_.count_targets(indices_of(t));
  return place->second;
}

int64_t EpochBatches::micro_batch_targets(MicroBatchId b) const {
  const MutexLock lock(mutex_);
  const auto [place, is_new] = counted_parts_.try_emplace(b);
  if (is_new) place->second = data_.count_targets(indices(cut_.range(b)));
  return place->second;
}

int64_t EpochBatches::samples(MicroBatchId b) const {
  const auto range = cut_.range(b);
  return range.end - range.begin;
}

uint64_t EpochBatches::seed(MicroBatchId b) const {
  return derive_seed(seed_, first_ + cut_.range(b).begin);
}

}  // namespace penstock::train
