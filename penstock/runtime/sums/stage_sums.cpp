#include "penstock/runtime/sums/stage_sums.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "penstock/plan/weight_policy.h"
#include "penstock/runtime/device/host_stash.h"
#include "penstock/runtime/ordered_sum.h"
#include "penstock/schedule/gradient_sets.h"

namespace penstock::runtime {

using schedule::Action;

SegmentEnds StageSums::segment_ends() const {
  return cut_by_weights(context_.module(), schedule::kGradientBytesTogether);
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
  if (ahead_ && !gradients_.finishes(action.micro_batch)) ahead_.reset();
  Tensors rest = backward([&](const std::vector<size_t>& places, Tensors& gradients) {
    gradients_.add_made(action.micro_batch, places, gradients);
    if (ahead_) step_made(action.micro_batch, places);
  });
  gradients_.add(action.micro_batch, std::move(rest));
}

void SoleSums::expect_step(const Action& step, std::vector<WeightVersion> freed) {
  const bool reads_newest = plan::backward_reads_newest(context_.shape().policy);
  if (!context_.device().is_host() || reads_newest || context_.moved != nullptr ||
      !rounded_.empty() || !context_.replica.ties->inside.empty())
    return;
  ahead_ = StepAhead{context_.step_context(step.version.value), std::move(freed)};
}

void SoleSums::step_made(MicroBatchId micro_batch, const std::vector<size_t>& places) {
  WeightStore& weights = context_.replica.weights;
  const StashPause pause;  // what a step makes is no activation
  for (const size_t place : places) {
    const at::Tensor gradient = gradients_.take_made(micro_batch, place);
    if (!gradient.defined()) continue;
    if (stepped_.empty()) {
      stepped_.resize(context_.module().weight_offsets().back(), false);
      weights.begin_step(ahead_->context, ahead_->freed);
    }
    weights.step_weights(place, Tensors{gradient});
    stepped_[place] = true;
  }
}

void SoleSums::step_rest(const Tensors& gradients) {
  for (size_t w = 0; w < gradients.size(); ++w) {
    if (!stepped_[w]) context_.replica.weights.step_weights(w, TensorSpan(gradients).subspan(w, 1));
  }
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
  const Tensors& gradients = ready(action.mini_batch);
  if (!stepped_.empty())
    step_rest(gradients);
  else
    context_.replica.weights.step(gradients, context_.step_context(action.version.value));
  ahead_.reset();
  stepped_.clear();
  ready_.reset();
}

}  // namespace penstock::runtime
