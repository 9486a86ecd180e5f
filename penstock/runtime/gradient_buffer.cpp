#include "penstock/runtime/gradient_buffer.h"

#include <ATen/core/grad_mode.h>

#include "penstock/runtime/ordered_sum.h"
#include "penstock/util/check.h"

namespace penstock::runtime {

namespace {

void add_all(model::Tensors& sums, model::Tensors&& parts) {
  if (sums.empty()) sums.resize(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) add_gradient(sums[i], std::move(parts[i]));
}

}  // namespace

void GradientBuffer::add(MicroBatchId micro_batch, model::Tensors gradients) {
  PENSTOCK_CHECK(gradients.size() == count_, gradients.size(), count_);
  const int64_t t = micro_batch.value / accumulate_;
  const int64_t number = micro_batch.value % groups_;
  const auto [entry, inserted] = mini_batches_[MiniBatchId{t}].try_emplace(number);
  Group& group = entry->second;
  if (inserted) {
    const int64_t first = t * accumulate_;
    group.next = first + (number - first % groups_ + groups_) % groups_;
  }
  PENSTOCK_CHECK(micro_batch.value >= group.next, "gradients of micro-batch", micro_batch, "are added twice");
  if (micro_batch.value != group.next) {
    group.early.emplace(micro_batch.value, std::move(gradients));
    return;
  }
  add_all(group.sums, std::move(gradients));
  group.next += groups_;
  while (!group.early.empty() && group.early.begin()->first == group.next) {
    add_all(group.sums, std::move(group.early.begin()->second));
    group.early.erase(group.early.begin());
    group.next += groups_;
  }
}

Partials GradientBuffer::take(MiniBatchId mini_batch) {
  Partials partials;
  const auto found = mini_batches_.find(mini_batch);
  if (found == mini_batches_.end()) return partials;
  for (auto& [number, group] : found->second) {
    PENSTOCK_CHECK(group.early.empty(), "a gradient of mini-batch", mini_batch, "is missing: micro-batch", group.next);
    partials.push_back({number, std::move(group.sums)});
  }
  mini_batches_.erase(found);
  return partials;
}

Partials GradientBuffer::take_exclusive(MiniBatchId mini_batch) {
  const at::NoGradGuard no_grad;
  Partials partials = take(mini_batch);
  for (GroupGradients& partial : partials) {
    for (at::Tensor& tensor : partial.sums) {
      if (tensor.defined() && !is_exclusive(tensor)) tensor = tensor.clone(at::MemoryFormat::Contiguous);
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

}  // namespace penstock::runtime
