// Arrays in memory or in files, the samples along their first dimension: for NumPy files, and for
// programs that have tensors.
//
//   auto data = std::make_shared<TensorDataset>("mine", spec, model::Tensors{images}, labels);
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/train/data/dataset.h"
#include "penstock/train/data/stored_array.h"

namespace penstock::train {

/// Why an array of `kind` and `sizes` cannot be the samples of an input, or the targets, of this
/// type and shape; empty: it can. Sizes of 1 may be more or fewer, and images may have their
/// channels last.
std::string array_misfit(const std::string& name, at::ScalarType kind, const model::Shape& sizes,
                         at::ScalarType type, const model::Shape& shape);

class TensorDataset final : public Dataset {
 public:
  /// One array per input of `sample`, and the targets (undefined where none are needed), each
  /// [samples, ...] of the spec's shape; numbers are converted to its types when they are read.
  /// Targets of `ignore_index` do not count. Throws ConfigError naming the array: shapes or types
  /// that do not fit, different numbers of samples, none.
  TensorDataset(std::string name, SampleSpec sample, std::vector<StoredArray> inputs,
                StoredArray targets, int64_t ignore_index = -100);
  TensorDataset(std::string name, SampleSpec sample, const model::Tensors& inputs,
                at::Tensor targets, int64_t ignore_index = -100);

  std::string name() const override { return name_; }
  int64_t size() const override { return inputs_.front().size(); }
  const SampleSpec& sample() const override { return sample_; }
  model::Tensors inputs(const std::vector<int64_t>& indices) const override;
  model::Tensors inputs_for_transfer(const std::vector<int64_t>& indices) const override;
  at::Tensor targets(const std::vector<int64_t>& indices) const override;
  int64_t count_targets(const std::vector<int64_t>& indices) const override;

  /// The samples that cannot be trained with (a number that is not finite, a row or class that does
  /// not exist), in order, each with the reason: "sample 3 of 'x' holds nan". At most `most`
  /// of each kind.
  struct BadSample {
    int64_t index = 0;
    std::string reason;
  };
  std::vector<BadSample> bad_samples(size_t most) const;

 private:
  void count_all_targets();

  std::string name_;
  SampleSpec sample_;
  std::vector<StoredArray> inputs_;
  StoredArray targets_;
  int64_t ignore_index_;
  std::vector<int64_t> counts_;  ///< targets of each sample that count; empty: all of them
};

}  // namespace penstock::train
