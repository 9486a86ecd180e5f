// Data made from a seed, for any model. Every class has a coarse pattern, and every sample is its
// class's pattern plus noise; tokens follow each other by a rule, with exceptions. Nothing is
// stored; a sample is computed from (seed, index) when it is needed, so large shapes cost no
// memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/train/data/dataset.h"

namespace penstock::train {

class SyntheticDataset : public Dataset {
 public:
  /// Sets with the same seed and different `part` have the same patterns and rules but different
  /// samples. Sample i has class i % classes; without classes as targets there are ten patterns.
  /// Inputs of whole numbers are tokens, those with "mask" in their name ones. Targets for each
  /// place of tokens are the next tokens. Other targets are a pattern of the class's own.
  SyntheticDataset(SampleSpec sample, int64_t samples, uint64_t seed, uint64_t part);

  std::string name() const override { return "synthetic"; }
  int64_t size() const override { return samples_; }
  const SampleSpec& sample() const override { return sample_; }
  model::Tensors inputs(const std::vector<int64_t>& indices) const override;
  at::Tensor targets(const std::vector<int64_t>& indices) const override;

 private:
  bool has_tokens() const;
  at::Tensor patterns(const std::vector<int64_t>& indices, const model::Shape& shape, size_t stream,
                      bool with_noise) const;
  void write_pattern(int64_t label, const model::Shape& shape, size_t stream, float* out) const;
  void add_noise(int64_t index, int64_t elements, size_t stream, float* out) const;
  /// The sample's tokens from place `first` on: a row, each below `values`.
  void write_tokens(int64_t index, int64_t first, int64_t count, int64_t values,
                    int64_t* out) const;
  at::Tensor tokens(const std::vector<int64_t>& indices, const model::Shape& shape, int64_t first,
                    int64_t values) const;

  SampleSpec sample_;
  int64_t samples_;
  int64_t classes_;
  int64_t values_;  ///< of tokens
  uint64_t pattern_seed_;
  uint64_t noise_seed_;
};

/// Data of this kind as DataSpec says: by default 2048 training samples and 512 for the test.
DataSplit make_synthetic(const DataSpec& spec);

}  // namespace penstock::train
