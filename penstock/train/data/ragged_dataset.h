// Batches whose sequences have lengths of their own, as a program's loader gives them.
//
//   RaggedDataset data({first, second}, sample, -100);   // each a TensorDataset
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "penstock/train/data/dataset.h"

namespace penstock::train {

/// The samples of several data sets one behind the other. What is shorter is padded behind its
/// first size: inputs with zeros, targets with `ignore_index` where they are whole numbers.
class RaggedDataset final : public Dataset {
 public:
  /// Their samples differ in first sizes alone; `sample`: what the model takes.
  RaggedDataset(std::vector<std::shared_ptr<const Dataset>> batches, SampleSpec sample,
                int64_t ignore_index);

  std::string name() const override { return "the batches"; }
  int64_t size() const override { return ends_.back(); }
  const SampleSpec& sample() const override { return sample_; }
  model::Tensors inputs(const std::vector<int64_t>& indices) const override;
  at::Tensor targets(const std::vector<int64_t>& indices) const override;
  std::vector<model::Shape> filled(const std::vector<int64_t>& indices) const override;
  int64_t count_targets(const std::vector<int64_t>& indices) const override;

 private:
  /// Neighbours of one batch.
  struct Part {
    const Dataset* batch;
    std::vector<int64_t> indices;
  };
  std::vector<Part> parts_of(const std::vector<int64_t>& indices) const;

  std::vector<std::shared_ptr<const Dataset>> batches_;
  std::vector<int64_t> ends_;  ///< of each batch's samples
  SampleSpec sample_;
  int64_t ignore_index_;
};

}  // namespace penstock::train
