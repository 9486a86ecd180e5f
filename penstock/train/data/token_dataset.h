// One long row of tokens, as language models learn it: a sample is a window, its targets are the
// tokens that follow each of its tokens.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/train/data/dataset.h"
#include "penstock/train/data/stored_array.h"

namespace penstock::train {

class TokenDataset final : public Dataset {
 public:
  /// `tokens` [length], whole numbers. Windows do not overlap, and the last tokens that do not fill
  /// one are left out. Of the model's inputs one is the tokens (the first that is no mask, position
  /// or label); inputs with "mask" in their name are ones, those with "position" count from 0,
  /// "labels" are the tokens again. Throws ConfigError: an input that is none of these, too few
  /// tokens, a token that is no row of the model's table.
  /// `ignore_index`: targets of this number do not count.
  TokenDataset(std::string name, SampleSpec sample, StoredArray tokens,
               int64_t ignore_index = -100);

  std::string name() const override { return name_; }
  int64_t size() const override { return samples_; }
  const SampleSpec& sample() const override { return sample_; }
  model::Tensors inputs(const std::vector<int64_t>& indices) const override;
  at::Tensor targets(const std::vector<int64_t>& indices) const override;
  int64_t count_targets(const std::vector<int64_t>& indices) const override;

 private:
  enum class Role : uint8_t { Tokens, Mask, Positions };
  /// [indices, length_], beginning `shift` tokens later.
  at::Tensor windows(const std::vector<int64_t>& indices, int64_t shift) const;

  std::string name_;
  SampleSpec sample_;
  StoredArray tokens_;
  std::vector<Role> roles_;  ///< of the inputs
  int64_t ignore_index_;
  int64_t length_ = 0;  ///< of a window
  int64_t samples_ = 0;
};

}  // namespace penstock::train
