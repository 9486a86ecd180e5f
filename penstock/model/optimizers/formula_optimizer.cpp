#include "penstock/model/optimizers/formula_optimizer.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>

#include "penstock/util/check.h"

namespace penstock::model::detail {
namespace {

bool is_plain(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.scalar_type() == at::kFloat && tensor.is_contiguous() &&
         tensor.layout() == at::kStrided;
}

}  // namespace

WeightLists::WeightLists(std::span<WeightStep> steps, bool same_layout)
    : state(steps.front().state.size()) {
  for (const WeightStep& step : steps) {
    const at::Tensor weight = step.weight.data();
    at::Tensor gradient = step.gradient.data().to(weight.scalar_type());
    if (same_layout && gradient.strides() != weight.strides())
      gradient = at::empty_like(weight).copy_(gradient);
    gradients.tensors.push_back(std::move(gradient));
    for (size_t s = 0; s < state.size(); ++s) state[s].tensors.push_back(step.state[s].data());
    weights.tensors.push_back(step.new_weight.data());
    if (weights.tensors.back().is_alias_of(weight)) continue;
    weights.tensors.back().copy_(weight);
    in_place = false;
  }
}

OptimizerSpec spec_at(OptimizerSpec spec, const StepContext& context) {
  double OptimizerSpec::*const parameter = momentum_parameter(spec);
  if (context.momentum && parameter != nullptr) spec.*parameter = *context.momentum;
  return spec;
}

void check_step(const at::Tensor& weight, const at::Tensor& gradient, const at::Tensor& new_weight,
                std::span<const at::Tensor> state, size_t num_states) {
  PENSTOCK_CHECK(weight.defined() && gradient.defined() && new_weight.defined());
  PENSTOCK_CHECK(weight.sizes() == gradient.sizes(), weight.sizes(), gradient.sizes());
  PENSTOCK_CHECK(weight.sizes() == new_weight.sizes(), weight.sizes(), new_weight.sizes());
  PENSTOCK_CHECK(state.size() == num_states, state.size(), num_states);
  for (const at::Tensor& tensor : state)
    PENSTOCK_CHECK(tensor.sizes() == weight.sizes(), tensor.sizes(), weight.sizes());
}

bool all_plain(const at::Tensor& weight, const at::Tensor& new_weight,
               std::span<const at::Tensor> state) {
  return is_plain(weight) && is_plain(new_weight) &&
         std::all_of(state.begin(), state.end(), is_plain);
}

at::Tensor plain_gradient(const at::Tensor& gradient) {
  return gradient.data().to(at::kFloat).contiguous();
}

void by_threads(int64_t count, const std::function<void(int64_t, int64_t)>& run) {
  at::parallel_for(0, count, kGrain, run);
}

}  // namespace penstock::model::detail
