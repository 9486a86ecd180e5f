#include "penstock/runtime/round_state.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include "penstock/model/device/tensor_memory.h"
#include "penstock/util/check.h"

namespace penstock::runtime {

RoundState::RoundState(const WeightStore& weights, const model::Optimizer& outer) : outer_(outer) {
  const at::NoGradGuard no_grad;
  state_.resize(outer.state_names().size());
  for (const at::Tensor& weight : weights.newest()) {
    start_.push_back(weight.detach().clone(at::MemoryFormat::Contiguous));
    const Tensors state = outer.new_state(start_.back());
    for (size_t s = 0; s < state.size(); ++s) state_[s].push_back(state[s]);
  }
}

Tensors RoundState::changes(const WeightStore& weights, size_t first, size_t count) const {
  const at::NoGradGuard no_grad;
  const Tensors newest = weights.newest();
  PENSTOCK_CHECK(first + count <= start_.size(), first, count, start_.size());
  Tensors changes;
  for (size_t i = first; i < first + count; ++i) changes.push_back(start_[i] - newest[i].detach());
  return changes;
}

void RoundState::finish(WeightStore& weights, size_t first, const Tensors& sums, int replicas,
                        const model::StepContext& step) {
  const at::NoGradGuard no_grad;
  PENSTOCK_CHECK(first + sums.size() <= start_.size(), first, sums.size(), start_.size());
  Tensors state(state_.size());
  for (size_t k = 0; k < sums.size(); ++k) {
    const size_t i = first + k;
    for (size_t s = 0; s < state_.size(); ++s) state[s] = state_[s][i];
    outer_.step(start_[i], at::div(sums[k], replicas), start_[i], state, step);
  }
  weights.replace(first, TensorSpan(start_).subspan(first, sums.size()));
}

Tensors RoundState::closed(const Tensors& means, const model::StepContext& step) const {
  const at::NoGradGuard no_grad;
  PENSTOCK_CHECK(means.size() == start_.size(), means.size(), start_.size());
  Tensors closed;
  Tensors state(state_.size());
  for (size_t i = 0; i < start_.size(); ++i) {
    for (size_t s = 0; s < state_.size(); ++s) state[s] = state_[s][i].clone();
    closed.push_back(start_[i].clone());
    outer_.step(start_[i], means[i], closed.back(), state, step);
  }
  return closed;
}

void RoundState::show(WeightStore& weights, const Tensors& shown) {
  PENSTOCK_CHECK(hidden_.empty(), hidden_.size());
  for (const at::Tensor& weight : shown) hidden_.push_back(weight.clone());
  weights.exchange(hidden_);
}

void RoundState::hide(WeightStore& weights) {
  if (hidden_.empty()) return;  // nothing is shown
  weights.exchange(hidden_);
  hidden_.clear();
}

void RoundState::load(TensorSpan start, const std::vector<Tensors>& state) {
  const at::NoGradGuard no_grad;
  PENSTOCK_CHECK(start.size() == start_.size() && state.size() == state_.size(), start.size(),
                 state.size());
  for (size_t i = 0; i < start.size(); ++i) start_[i].copy_(start[i]);
  for (size_t s = 0; s < state.size(); ++s) {
    for (size_t i = 0; i < state[s].size(); ++i) state_[s][i].copy_(state[s][i]);
  }
}

void RoundState::claim_memory() const {
  const auto claim = [](const Tensors& tensors) {
    for (const at::Tensor& tensor : tensors)
      model::set_memory_kind(tensor, MemoryKind::OptimizerState);
  };
  claim(start_);
  for (const Tensors& tensors : state_) claim(tensors);
}

}  // namespace penstock::runtime
