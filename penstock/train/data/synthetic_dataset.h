// Classification data made from a seed: every class has a coarse pattern, every sample is its
// class's pattern plus noise. Nothing is stored; a sample is computed from (seed, index) when it is
// needed, so large shapes cost no memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/train/data/dataset.h"

namespace penstock::train {

class SyntheticDataset : public Dataset {
 public:
  /// Sets with the same seed and different `part` have the same patterns but different samples.
  /// Sample i has class i % classes.
  SyntheticDataset(model::Shape shape, int64_t samples, int64_t classes, uint64_t seed,
                   uint64_t part);

  std::string name() const override { return "synthetic"; }
  int64_t size() const override { return samples_; }
  int64_t classes() const override { return classes_; }
  model::Shape sample_shape() const override { return shape_; }
  at::Tensor inputs(const std::vector<int64_t>& indices) const override;
  at::Tensor targets(const std::vector<int64_t>& indices) const override;

 private:
  void write_pattern(int64_t label, float* out) const;
  void add_noise(int64_t index, float* out) const;

  model::Shape shape_;
  int64_t elements_;
  int64_t samples_;
  int64_t classes_;
  uint64_t pattern_seed_;
  uint64_t noise_seed_;
};

}  // namespace penstock::train
