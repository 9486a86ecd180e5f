#include "penstock/runtime/sums/sole_sums.h"

#include <utility>

namespace penstock::runtime {

using schedule::Action;

SoleSums::SoleSums(const StageContext& context, Grouping grouping)
    : StageSums(context),
      rounded_(grouping.rounded),
      gradients_(context.module().weight_offsets().back(), grouping) {}

void SoleSums::add(const Action& action, const Backward& backward) {
  gradients_.add(action.micro_batch, backward(StageTape::Made()));
}

Tensors& SoleSums::ready(MiniBatchId mini_batch) {
  if (ready_) return *ready_;
  ready_ = sum_of(gradients_.take(mini_batch), context_.module().weight_offsets().back());
  for (size_t w = 0; w < rounded_.size(); ++w) {
    if (rounded_[w])
      (*ready_)[w] = rounded(std::move((*ready_)[w]), context_.run.gradient_precision);
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
