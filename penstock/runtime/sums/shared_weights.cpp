#include "penstock/runtime/sums/shared_weights.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "penstock/runtime/device/host_stash.h"
#include "penstock/runtime/ordered_sum.h"
#include "penstock/util/check.h"

namespace penstock::runtime {

using schedule::Action;

SharedSums::SharedSums(const StageContext& context, const Grouping& grouping, GradientBoard& board)
    : StageSums(context),
      board_(board),
      gradients_(context.module().weight_offsets().back(), grouping),
      given_(context.module().weight_offsets().back(), false) {}

void SharedSums::expect_step(const Action& step, std::vector<WeightVersion> freed) {
  ahead_ = StepAhead{context_.step_context(step.version.value), std::move(freed)};
}

void SharedSums::add(const Action& action, const Backward& backward) {
  if (ahead_ && !gradients_.finishes(action.micro_batch)) ahead_.reset();
  Tensors rest = backward([&](const std::vector<size_t>& places, Tensors& gradients) {
    gradients_.add_made(action.micro_batch, places, gradients);
    if (!ahead_) return;
    for (const size_t place : places) give(place, gradients_.take_made(action.micro_batch, place));
    step_complete();
  });
  gradients_.add(action.micro_batch, std::move(rest));
}

void SharedSums::give(size_t weight, at::Tensor gradient) {
  const at::NoGradGuard no_grad;
  if (gradient.defined() && !is_exclusive(gradient))
    gradient = gradient.clone(at::MemoryFormat::Contiguous);
  given_[weight] = true;
  board_.give(context_.replica.replica, weight, std::move(gradient));
}

at::Tensor SharedSums::sum_of_share(size_t weight, const Tensors& gradients) const {
  const WeightRange& range = board_.share_of(context_.replica.replica)[weight];
  at::Tensor sum;
  for (const at::Tensor& part : gradients) {
    if (!part.defined()) continue;
    if (sum.defined()) {
      sum.view(-1)
          .narrow(0, range.begin, range.length)
          .add_(part.view(-1).narrow(0, range.begin, range.length));
    } else {
      sum = part;
    }
  }
  return sum;
}

void SharedSums::step_complete() {
  const at::NoGradGuard no_grad;
  const StashPause pause;  // what a step makes is no activation
  while (const auto complete = board_.next(context_.replica.replica)) {
    WeightStore& weights = context_.replica.weights;
    if (!has_begun_) weights.begin_step(ahead_->context, ahead_->freed);
    has_begun_ = true;
    const auto& [weight, gradients] = *complete;
    weights.step_weights(weight, Tensors{sum_of_share(weight, gradients)});
    board_.done(weight);
  }
}

void SharedSums::sync(const Action& action) {
  // A replica without a micro-batch of the mini-batch gives nothing.
  Tensors rest =
      sum_of(gradients_.take(action.mini_batch), context_.module().weight_offsets().back());
  for (size_t w = 0; w < rest.size(); ++w) {
    if (!given_[w]) give(w, std::move(rest[w]));
  }
  if (ahead_) step_complete();
  context_.meet_replicas();
}

Tensors& SharedSums::ready(MiniBatchId mini_batch) {
  PENSTOCK_CHECK(false, "mini-batch", mini_batch, "has no sums of whole gradients");
}

void SharedSums::step(const Action& action) {
  WeightStore& weights = context_.replica.weights;
  if (!ahead_) ahead_ = StepAhead{context_.step_context(action.version.value), {}};
  step_complete();
  if (!has_begun_) weights.begin_step(ahead_->context, ahead_->freed);
  const WeightShare& share = board_.share_of(context_.replica.replica);
  for (size_t w = 0; w < share.size(); ++w) {
    if (share[w].length == 0) weights.step_weights(w, Tensors(1));
  }
  context_.meet_replicas();
  ahead_.reset();
  has_begun_ = false;
  given_.assign(given_.size(), false);
}

}  // namespace penstock::runtime
