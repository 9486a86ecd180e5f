#include "penstock/runtime/gradient_buffer.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "penstock/runtime/ordered_sum.h"
#include "penstock/util/check.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::runtime {

namespace {

void add_all(model::Tensors& sums, model::Tensors&& parts) {
  if (sums.empty()) sums.resize(parts.size());
  // On a GPU those that can be added to in place are added together.
  model::Tensors targets;
  model::Tensors added;
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool together = parts[i].defined() && !parts[i].device().is_cpu() && sums[i].defined() &&
                          is_exclusive(sums[i]) && sums[i].scalar_type() == parts[i].scalar_type();
    if (!together) {
      add_gradient(sums[i], std::move(parts[i]));
      continue;
    }
    targets.push_back(sums[i]);
    added.push_back(std::move(parts[i]));
  }
  if (targets.empty()) return;
  const at::NoGradGuard no_grad;
  at::_foreach_add_(targets, added);
}

}  // namespace

GradientBuffer::MiniBatch& GradientBuffer::mini_batch_of(MicroBatchId micro_batch) {
  const int64_t t = micro_batch.value / grouping_.accumulate;
  const auto [entry, inserted] = mini_batches_.try_emplace(MiniBatchId{t});
  if (inserted) {
    entry->second.first = t * grouping_.accumulate;
    entry->second.end =
        entry->second.first +
        std::min(grouping_.accumulate, grouping_.micro_batches - entry->second.first);
  }
  return entry->second;
}

int64_t GradientBuffer::first_of(const MiniBatch& mini_batch, int64_t group) const {
  const int64_t begin = mini_batch.first % grouping_.groups;
  return mini_batch.first + (group >= begin ? group - begin : grouping_.groups - begin + group);
}

int64_t GradientBuffer::next_present(const MiniBatch& mini_batch, int64_t group) const {
  if (group >= grouping_.groups) return -1;
  const int64_t size = mini_batch.end - mini_batch.first;
  if (size >= grouping_.groups) return group;
  // A range [begin, begin + size) that may wrap around to group 0.
  const int64_t begin = mini_batch.first % grouping_.groups;
  const int64_t to_end = grouping_.groups - begin;
  if (size > to_end && group < size - to_end) return group;
  if (group < begin) return begin;
  return group - begin < size ? group : -1;
}

void GradientBuffer::round(model::Tensors& sums) const {
  for (size_t w = 0; w < grouping_.rounded.size(); ++w) {
    if (grouping_.rounded[w]) sums[w] = rounded(std::move(sums[w]), grouping_.gradient_precision);
  }
}

/// Where they travel in 16 bits, the groups of several replicas stay apart.
bool GradientBuffer::folds() const {
  return grouping_.replicas == 1 || !is_short(grouping_.gradient_precision);
}

void GradientBuffer::fold(MiniBatch& mini_batch) {
  if (!folds()) return;
  while (true) {
    const int64_t group = next_present(mini_batch, mini_batch.next_group);
    // A group of another replica is between them.
    if (group < 0 || group % grouping_.replicas != grouping_.replica) return;
    const auto found = mini_batch.groups.find(group);
    if (found == mini_batch.groups.end() || found->second.next < mini_batch.end) return;
    round(found->second.sums);
    if (mini_batch.folded)
      add_all(mini_batch.folded->sums, std::move(found->second.sums));
    else
      mini_batch.folded = GroupGradients{group, std::move(found->second.sums)};
    mini_batch.groups.erase(found);
    mini_batch.next_group = group + 1;
  }
}

GradientBuffer::Group& GradientBuffer::group_of(MiniBatch& mini_batch, MicroBatchId micro_batch) {
  PENSTOCK_CHECK(micro_batch.value < grouping_.micro_batches, micro_batch, grouping_.micro_batches);
  const int64_t number = micro_batch.value % grouping_.groups;
  PENSTOCK_CHECK(number >= mini_batch.next_group, "gradients of micro-batch", micro_batch,
                 "are added twice");
  PENSTOCK_CHECK(number % grouping_.replicas == grouping_.replica, "micro-batch", micro_batch,
                 "is not of replica", grouping_.replica);
  const auto [entry, inserted] = mini_batch.groups.try_emplace(number);
  Group& group = entry->second;
  if (inserted) group.next = first_of(mini_batch, number);
  PENSTOCK_CHECK(micro_batch.value >= group.next, "gradients of micro-batch", micro_batch,
                 "are added twice");
  return group;
}

model::Tensors* GradientBuffer::sums_for(MicroBatchId micro_batch) {
  MiniBatch& mini_batch = mini_batch_of(micro_batch);
  Group& group = group_of(mini_batch, micro_batch);
  if (micro_batch.value != group.next) return nullptr;
  const bool is_alone = saturating_add(group.next, grouping_.groups) >= mini_batch.end;
  // Its group's sum would be added to those before it anyway.
  if (mini_batch.folded && is_alone && group.sums.empty() && grouping_.rounded.empty() && folds() &&
      micro_batch.value % grouping_.groups == next_present(mini_batch, mini_batch.next_group))
    return &mini_batch.folded->sums;
  group.sums.resize(count_);
  return &group.sums;
}

void GradientBuffer::add_made(MicroBatchId micro_batch, const std::vector<size_t>& weights,
                              model::Tensors& gradients, size_t first) {
  model::Tensors* const sums = sums_for(micro_batch);
  if (sums == nullptr) return;
  model::Tensors targets;
  model::Tensors parts;
  for (const size_t w : weights) {
    targets.push_back(std::move((*sums)[w]));
    parts.push_back(std::move(gradients[first + w]));
  }
  add_all(targets, std::move(parts));
  for (size_t i = 0; i < weights.size(); ++i) (*sums)[weights[i]] = std::move(targets[i]);
}

bool GradientBuffer::finishes(MicroBatchId micro_batch) {
  MiniBatch& mini_batch = mini_batch_of(micro_batch);
  const Group& group = group_of(mini_batch, micro_batch);
  const int64_t number = micro_batch.value % grouping_.groups;
  if (micro_batch.value != group.next || !group.early.empty() ||
      saturating_add(group.next, grouping_.groups) < mini_batch.end)
    return false;
  if (mini_batch.groups.size() != 1 || !grouping_.rounded.empty() || !folds()) return false;
  if (grouping_.replicas > 1) return grouping_.groups == grouping_.replicas && !mini_batch.folded;
  const bool is_last_group = next_present(mini_batch, mini_batch.next_group) == number &&
                             next_present(mini_batch, number + 1) < 0;
  if (!is_last_group) return false;
  return !mini_batch.folded || group.sums.empty();
}

at::Tensor GradientBuffer::take_made(MicroBatchId micro_batch, size_t weight) {
  model::Tensors* const sums = sums_for(micro_batch);
  PENSTOCK_CHECK(sums != nullptr, micro_batch);
  return std::move((*sums)[weight]);
}

void GradientBuffer::add(MicroBatchId micro_batch, model::Tensors gradients) {
  PENSTOCK_CHECK(gradients.size() == count_, gradients.size(), count_);
  MiniBatch& mini_batch = mini_batch_of(micro_batch);
  Group& group = group_of(mini_batch, micro_batch);
  if (micro_batch.value != group.next) {
    group.early.emplace(micro_batch.value, std::move(gradients));
    return;
  }
  // The number of groups may be as large as INT64_MAX.
  const auto advance = [&] { group.next = saturating_add(group.next, grouping_.groups); };
  add_all(group.sums, std::move(gradients));
  advance();
  while (!group.early.empty() && group.early.begin()->first == group.next) {
    add_all(group.sums, std::move(group.early.begin()->second));
    group.early.erase(group.early.begin());
    advance();
  }
  fold(mini_batch);
}

Partials GradientBuffer::take(MiniBatchId id) {
  Partials partials;
  const auto found = mini_batches_.find(id);
  if (found == mini_batches_.end()) return partials;
  MiniBatch& mini_batch = found->second;
  if (mini_batch.folded) partials.push_back(std::move(*mini_batch.folded));
  for (auto& [number, group] : mini_batch.groups) {
    PENSTOCK_CHECK(group.next >= mini_batch.end, "a gradient of mini-batch", id,
                   "is missing: micro-batch", group.next);
    partials.push_back({number, std::move(group.sums)});
  }
  mini_batches_.erase(found);
  return partials;
}

int64_t GradientBuffer::num_sets() const {
  size_t sets = 0;
  for (const auto& [id, mini_batch] : mini_batches_) {
    sets += mini_batch.folded ? 1 : 0;
    for (const auto& [number, group] : mini_batch.groups)
      sets += (group.sums.empty() ? 0 : 1) + group.early.size();
  }
  return static_cast<int64_t>(sets);
}

Partials GradientBuffer::take_exclusive(MiniBatchId mini_batch) {
  const at::NoGradGuard no_grad;
  Partials partials = take(mini_batch);
  for (GroupGradients& partial : partials) {
    for (at::Tensor& tensor : partial.sums) {
      if (tensor.defined() && !is_exclusive(tensor))
        tensor = tensor.clone(at::MemoryFormat::Contiguous);
    }
  }
  return partials;
}

model::Tensors sum_of(Partials partials, size_t count) {
  if (partials.empty()) return model::Tensors(count);
  model::Tensors sums = std::move(partials.front().sums);
  for (size_t i = 1; i < partials.size(); ++i) add_all(sums, std::move(partials[i].sums));
  return sums;
}

at::Tensor rounded(at::Tensor gradient, FloatType precision) {
  if (!gradient.defined() || !is_short(precision)) return gradient;
  const at::NoGradGuard no_grad;
  if (!gradient.device().is_cpu()) {
    const at::ScalarType type = precision == FloatType::BFloat16 ? at::kBFloat16 : at::kHalf;
    return gradient.to(type).to(gradient.scalar_type());
  }
  if (!is_exclusive(gradient)) gradient = gradient.clone(at::MemoryFormat::Contiguous);
  round_in_place(precision, gradient.data_ptr<float>(), static_cast<size_t>(gradient.numel()));
  return gradient;
}

}  // namespace penstock::runtime
