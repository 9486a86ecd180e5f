#include "penstock/runtime/sums/stage_sums.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "penstock/runtime/ordered_sum.h"

namespace penstock::runtime {

using schedule::Action;

SegmentEnds StageSums::segment_ends() const {
  constexpr int64_t kMostBytes = 1 << 20;  // a layer of as many takes far longer than a call
  return cut_by_weights(context_.module(), kMostBytes);
}

void StageSums::add_inner_ties() {
  for (const std::vector<size_t>& group : context_.replica.ties->inside) {
    at::Tensor sum;
    for (const size_t w : group) add_gradient(sum, std::exchange((*ready_)[w], {}));
    for (const size_t w : group) (*ready_)[w] = sum;
  }
}

SoleSums::SoleSums(const StageContext& context, Grouping grouping)
    : StageSums(context),
      rounded_(grouping.rounded),
      gradients_(context.module().weight_offsets().back(), grouping) {}

void SoleSums::add(const Action& action, const Backward& backward) {
  Tensors rest = backward([&](const std::vector<size_t>& places, Tensors& gradients) {
    gradients_.add_made(action.micro_batch, places, gradients);
  });
  gradients_.add(action.micro_batch, std::move(rest));
}

Tensors& SoleSums::ready(MiniBatchId mini_batch) {
  if (ready_) return *ready_;
  ready_ = sum_of(gradients_.take(mini_batch), context_.module().weight_offsets().back());
  for (size_t w = 0; w < rounded_.size(); ++w) {
    if (rounded_[w])
      (*ready_)[w] = rounded(std::move((*ready_)[w]), context_.run.setup.gradient_precision);
  }
  add_inner_ties();
  return *ready_;
}

void SoleSums::step(const Action& action) {
  const model::StepContext step = context_.step_context(action.version.value);
  context_.replica.weights.step(ready(action.mini_batch), step);
  ready_.reset();
}

}  // namespace penstock::runtime
