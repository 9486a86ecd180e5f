// Some samples of a data set as a data set.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "penstock/train/data/dataset.h"

namespace penstock::train {

class SampleSubset final : public Dataset {
 public:
  /// The samples of `base` with these indices, in this order; there may be none.
  SampleSubset(std::shared_ptr<const Dataset> base, std::vector<int64_t> indices)
      : base_(std::move(base)), indices_(std::move(indices)) {}

  std::string name() const override { return base_->name(); }
  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  const SampleSpec& sample() const override { return base_->sample(); }
  model::Tensors inputs(const std::vector<int64_t>& indices) const override {
    return base_->inputs(of_base(indices));
  }
  model::Tensors inputs_for_transfer(const std::vector<int64_t>& indices) const override {
    return base_->inputs_for_transfer(of_base(indices));
  }
  model::Tensors inputs_with_targets(
      const std::vector<int64_t>& indices,
      const std::vector<std::vector<int64_t>>& targets) const override {
    return base_->inputs_with_targets(of_base(indices), targets);
  }
  std::vector<model::Shape> filled(const std::vector<int64_t>& indices) const override {
    return base_->filled(of_base(indices));
  }
  std::vector<model::Shape> filled_with(const std::vector<int64_t>& indices,
                                        int64_t target_places) const override {
    return base_->filled_with(of_base(indices), target_places);
  }
  at::Tensor targets(const std::vector<int64_t>& indices) const override {
    return base_->targets(of_base(indices));
  }
  bool is_slow() const override { return base_->is_slow(); }
  int64_t count_targets(const std::vector<int64_t>& indices) const override {
    return base_->count_targets(of_base(indices));
  }

 private:
  std::vector<int64_t> of_base(const std::vector<int64_t>& indices) const {
    std::vector<int64_t> result;
    result.reserve(indices.size());
    for (const int64_t index : indices) result.push_back(indices_.at(static_cast<size_t>(index)));
    return result;
  }

  std::shared_ptr<const Dataset> base_;
  std::vector<int64_t> indices_;
};

}  // namespace penstock::train
