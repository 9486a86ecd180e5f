#include "penstock/train/data/pair_dataset.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "penstock/util/check.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/text/printable.h"

namespace penstock::train {

namespace {

/// Few different lengths: libraries prepare themselves for each.
int64_t in_fours(int64_t places, int64_t most) {
  constexpr int64_t kPlaces = 4;
  return std::min(ceil_div(places, kPlaces) * kPlaces, most);
}

}  // namespace

PairDataset::PairDataset(std::string name, SampleSpec sample, Sentences source, Sentences target,
                         SpecialTokens special, int64_t ignore_index)
    : name_(std::move(name)),
      sample_(std::move(sample)),
      source_(std::move(source)),
      target_(std::move(target)),
      special_(special),
      ignore_index_(ignore_index) {
  if (source_.size() != target_.size()) {
    throw ConfigError(
        fmt::format("expected a target for each source, found {} sources and {} "
                    "targets",
                    source_.size(), target_.size()));
  }
  find_roles();
  for (size_t i = 0; i < roles_.size(); ++i) {
    if (roles_[i] == Role::Source) check_tokens(source_, special_, sample_.inputs[i].values);
    if (roles_[i] == Role::Target) check_tokens(target_, special_, sample_.inputs[i].values);
  }
  if (sample_.targets.needed) check_tokens(target_, special_, sample_.targets.classes);
  find_fitting();
}

void PairDataset::find_roles() {
  for (const model::InputSpec& input : sample_.inputs) {
    if (!at::isIntegralType(input.type, /*includeBool=*/true) || input.shape.size() != 1) {
      throw ConfigError(
          fmt::format("pairs of sentences are for models of tokens; the input '{}' "
                      "is {} (a .npz file holds any inputs by name)",
                      printable(input.name), describe(input.type, input.shape)));
    }
    const bool has_target = target_length_ > 0;
    const bool is_mask = input.name.find("mask") != std::string::npos;
    const Role role = is_mask                  ? has_target ? Role::TargetMask : Role::SourceMask
                      : input.name == "labels" ? Role::Labels
                      : source_length_ == 0    ? Role::Source
                                               : Role::Target;
    if ((role == Role::Target && has_target) || (is_mask && source_length_ == 0)) {
      throw ConfigError(fmt::format(
          "pairs of sentences are for models with a source and a target, in this order; '{}' is "
          "another input (a .npz file holds any inputs by name)",
          printable(input.name)));
    }
    int64_t& length =
        role == Role::Source || role == Role::SourceMask ? source_length_ : target_length_;
    if (length == 0) length = input.shape.front();
    if (input.shape.front() != length) {
      throw ConfigError(fmt::format("the input '{}' has {} places, its tokens {}",
                                    printable(input.name), input.shape.front(), length));
    }
    roles_.push_back(role);
  }
  const model::TargetSpec& targets = sample_.targets;
  if (target_length_ == 0)
    throw ConfigError(
        "pairs of sentences are for models with a source and a target: this one has "
        "no second input of tokens");
  if (targets.needed &&
      (targets.type != at::kLong || targets.shape != model::Shape{target_length_})) {
    throw ConfigError(
        fmt::format("expected a model that makes logits for each of the target's {} places, found "
                    "targets ({})",
                    target_length_, describe(targets.type, targets.shape)));
  }
}

void PairDataset::find_fitting() {
  for (int64_t i = 0; i < source_.size(); ++i) {
    // Each has one more token: the end, or the beginning.
    const bool fits = source_.length(i) < source_length_ && target_.length(i) < target_length_;
    if (fits) fitting_.push_back(i);
  }
  const int64_t longer = source_.size() - size();
  if (longer > 0) {
    left_out_.add(fmt::format("pairs with a source of {} tokens or more, or a target of {}",
                              source_length_, target_length_),
                  longer);
  }
  if (fitting_.empty()) {
    throw ConfigError(
        fmt::format("none of {} pairs fits into a source of {} tokens and a target "
                    "of {}, with one token for their ends",
                    source_.size(), source_length_, target_length_));
  }
}

PairDataset::Rows PairDataset::sentences_of(const Sentences& sentences,
                                            const std::vector<int64_t>& indices) const {
  std::vector<int64_t> numbers;
  for (const int64_t index : indices) numbers.push_back(fitting_.at(static_cast<size_t>(index)));
  return rows_of(sentences, numbers);
}

at::Tensor PairDataset::values(Role role, const Rows& source, const Rows& target) const {
  switch (role) {
    case Role::Source:
      return padded(source, {.behind = special_.end, .pad = special_.pad}, source_length_);
    case Role::Target:
      return padded(target, {.before = special_.begin, .pad = special_.pad}, target_length_);
    case Role::Labels:
      return padded(target, {.behind = special_.end, .pad = ignore_index_}, target_length_);
    case Role::SourceMask:
      return values(Role::Source, source, target).ne(special_.pad);
    case Role::TargetMask:
      return values(Role::Target, source, target).ne(special_.pad);
  }
  PENSTOCK_CHECK(false, static_cast<int>(role));
}

model::Tensors PairDataset::inputs_of(const Rows& source, const Rows& target) const {
  model::Tensors batch;
  for (size_t i = 0; i < roles_.size(); ++i)
    batch.push_back(values(roles_[i], source, target).to(sample_.inputs[i].type).contiguous());
  return batch;
}

model::Tensors PairDataset::inputs(const std::vector<int64_t>& indices) const {
  return inputs_of(sentences_of(source_, indices), sentences_of(target_, indices));
}

model::Tensors PairDataset::inputs_with_targets(const std::vector<int64_t>& indices,
                                                const Rows& targets) const {
  return inputs_of(sentences_of(source_, indices), targets);
}

int64_t PairDataset::longest(const Sentences& sentences,
                             const std::vector<int64_t>& indices) const {
  int64_t most = 0;
  for (const int64_t index : indices)
    most = std::max(most, sentences.length(fitting_.at(static_cast<size_t>(index))) + 1);
  return most;
}

std::vector<model::Shape> PairDataset::filled(const std::vector<int64_t>& indices) const {
  return filled_with(indices, longest(target_, indices));
}

std::vector<model::Shape> PairDataset::filled_with(const std::vector<int64_t>& indices,
                                                   int64_t target_places) const {
  const int64_t source = in_fours(longest(source_, indices), source_length_);
  const int64_t target = in_fours(target_places, target_length_);
  std::vector<model::Shape> sizes;
  for (const Role role : roles_) {
    const bool of_source = role == Role::Source || role == Role::SourceMask;
    sizes.push_back({of_source ? source : target});
  }
  sizes.push_back(sample_.targets.needed ? model::Shape{target} : sample_.targets.shape);
  return sizes;
}

at::Tensor PairDataset::targets(const std::vector<int64_t>& indices) const {
  if (!sample_.targets.needed) return {};
  return values(Role::Labels, {}, sentences_of(target_, indices));
}

int64_t PairDataset::count_targets(const std::vector<int64_t>& indices) const {
  if (!sample_.targets.needed) return Dataset::count_targets(indices);
  int64_t count = 0;
  for (const int64_t index : indices)
    count += target_.length(fitting_.at(static_cast<size_t>(index))) + 1;
  return count;
}

}  // namespace penstock::train
