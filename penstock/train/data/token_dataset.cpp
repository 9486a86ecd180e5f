#include "penstock/train/data/token_dataset.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "penstock/util/check.h"
#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::train {

TokenDataset::TokenDataset(std::string name, SampleSpec sample, StoredArray tokens,
                           int64_t ignore_index)
    : name_(std::move(name)),
      sample_(std::move(sample)),
      tokens_(std::move(tokens)),
      ignore_index_(ignore_index) {
  int64_t rows = 0;
  for (const model::InputSpec& input : sample_.inputs) {
    const bool is_whole = at::isIntegralType(input.type, /*includeBool=*/true);
    if (!is_whole || input.shape.size() != 1) {
      throw ConfigError(fmt::format(
          "tokens are for models of tokens; the input '{}' is {} (a .npz file holds any "
          "inputs by name)",
          printable(input.name), describe(input.type, input.shape)));
    }
    const bool is_mask = input.name.find("mask") != std::string::npos;
    const bool is_position = input.name.find("position") != std::string::npos;
    roles_.push_back(is_mask ? Role::Mask : is_position ? Role::Positions : Role::Tokens);
    if (roles_.back() == Role::Tokens) {
      if (length_ > 0 && input.name != "labels") {
        throw ConfigError(
            fmt::format("tokens are for models with one input of them; '{}' is another one (a .npz "
                        "file holds any inputs by name)",
                        printable(input.name)));
      }
      if (input.values > 0) rows = input.values;
      length_ = input.shape.front();
    }
  }
  for (const model::InputSpec& input : sample_.inputs) {
    if (input.shape.front() == length_) continue;
    throw ConfigError(fmt::format("the input '{}' has {} numbers, the tokens {}",
                                  printable(input.name), input.shape.front(), length_));
  }
  if (length_ == 0) throw ConfigError("the model has no input for tokens");
  const bool shifts = sample_.targets.needed;
  if (shifts &&
      (sample_.targets.type != at::kLong || sample_.targets.shape != model::Shape{length_})) {
    throw ConfigError(
        fmt::format("the targets of tokens are the next tokens: expected a model that makes logits "
                    "for each of the {} places, found targets ({})",
                    length_, describe(sample_.targets.type, sample_.targets.shape)));
  }
  PENSTOCK_CHECK(tokens_.sizes().size() == 1, tokens_.sizes().size());
  samples_ = (tokens_.size() - (shifts ? 1 : 0)) / length_;
  if (samples_ < 1) {
    throw ConfigError(fmt::format("expected at least {} tokens, which is one sample, found {}",
                                  length_ + (shifts ? 1 : 0), tokens_.size()));
  }
  if (rows == 0) rows = sample_.targets.classes;
  if (shifts) rows = std::min(rows, sample_.targets.classes);
  int64_t lowest = 0;
  int64_t highest = 0;
  tokens_.each_block([&](int64_t, const at::Tensor& block) {
    lowest = std::min(lowest, block.min().item<int64_t>());
    highest = std::max(highest, block.max().item<int64_t>());
  });
  if (rows > 0 && (lowest < 0 || highest >= rows)) {
    throw ConfigError(fmt::format("the token {} does not exist: the model knows those from 0 to {}",
                                  lowest < 0 ? lowest : highest, rows - 1));
  }
}

at::Tensor TokenDataset::windows(const std::vector<int64_t>& indices, int64_t shift) const {
  const auto count = static_cast<int64_t>(indices.size());
  at::Tensor result = at::empty({count, length_}, at::kLong);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t index = indices[static_cast<size_t>(i)];
    PENSTOCK_CHECK(index >= 0 && index < samples_, index, samples_);
    result[i].copy_(tokens_.block(index * length_ + shift, length_));
  }
  return result;
}

model::Tensors TokenDataset::inputs(const std::vector<int64_t>& indices) const {
  const at::Tensor tokens = windows(indices, 0);
  model::Tensors batch;
  for (size_t i = 0; i < roles_.size(); ++i) {
    const at::Tensor values = roles_[i] == Role::Tokens ? tokens
                              : roles_[i] == Role::Mask
                                  ? at::ones_like(tokens)
                                  : at::arange(length_, tokens.options()).expand_as(tokens);
    batch.push_back(values.to(sample_.inputs[i].type).contiguous());
  }
  return batch;
}

int64_t TokenDataset::count_targets(const std::vector<int64_t>& indices) const {
  // Tokens count from 0.
  if (!sample_.targets.needed || ignore_index_ < 0) return Dataset::count_targets(indices);
  return windows(indices, 1).ne(ignore_index_).sum().item<int64_t>();
}

at::Tensor TokenDataset::targets(const std::vector<int64_t>& indices) const {
  return sample_.targets.needed ? windows(indices, 1) : at::Tensor();
}

}  // namespace penstock::train
