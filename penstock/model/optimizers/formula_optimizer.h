// An optimiser out of its formula: the step of one weight over plain memory, and that of many
// weights by operations on lists of tensors.
//
//   FormulaOptimizer<AdamFormula<Decay::InGradient>> adam(spec);
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <functional>
#include <span>
#include <vector>

#include "penstock/model/optimizer.h"
#include "penstock/model/optimizer_spec.h"
#include "penstock/model/optimizers/plain_step.h"
#include "penstock/model/optimizers/tensor_list.h"

namespace penstock::model::detail {

/// The tensors of several weights as lists, which share memory with them but no version counters:
/// writes through them stay invisible to autograd, as raw writes do.
struct WeightLists {
  /// `same_layout`: gradients are laid out as their weights, as operations on lists want it.
  WeightLists(std::span<WeightStep> steps, bool same_layout);

  bool in_place = true;  ///< all new weights overwrite the old ones
  TensorList weights;    ///< the new ones, which have the old ones' values
  TensorList gradients;  ///< in the weights' type
  std::vector<TensorList> state;
};

/// The spec with the momentum of the step.
OptimizerSpec spec_at(OptimizerSpec spec, const StepContext& context);
/// Throws InternalError when the tensors of a step do not belong together.
void check_step(const at::Tensor& weight, const at::Tensor& gradient, const at::Tensor& new_weight,
                std::span<const at::Tensor> state, size_t num_states);
/// Whether the loop over plain memory may be used.
bool all_plain(const at::Tensor& weight, const at::Tensor& new_weight,
               std::span<const at::Tensor> state);
/// A gradient that the loop can read; a copy when it is transposed or of another type.
at::Tensor plain_gradient(const at::Tensor& gradient);
/// Numbers per task: large enough that starting threads does not matter.
inline constexpr int64_t kGrain = 1 << 15;
/// Calls run(begin, end) for parts of 0..count, by the calling thread's intra-op threads.
void by_threads(int64_t count, const std::function<void(int64_t, int64_t)>& run);

/// Whether one operation of libtorch made the step of all weights; most formulas have none.
template <class Formula>
bool step_in_one_operation(const WeightLists&,
                           const typename Formula::template Coefficients<double>&) {
  return false;
}

template <class Formula>
class FormulaOptimizer final : public Optimizer {
 public:
  explicit FormulaOptimizer(const OptimizerSpec& spec) : Optimizer(spec) {}

  void step(const at::Tensor& weight, const at::Tensor& gradient, at::Tensor& new_weight,
            std::span<at::Tensor> state, const StepContext& context) const override {
    check_step(weight, gradient, new_weight, state, Formula::kStates);
    if (all_plain(weight, new_weight, state))
      return step_plain(weight, gradient, new_weight, state, context);
    WeightStep step{weight, gradient, new_weight, {state.begin(), state.end()}};
    step_lists(WeightLists({&step, 1}, /*same_layout=*/false), context);
  }

  void step_together(std::span<WeightStep> steps, const StepContext& context) const override {
    if (!steps.empty()) step_lists(WeightLists(steps, /*same_layout=*/true), context);
  }

 private:
  template <class Real>
  using Coefficients = typename Formula::template Coefficients<Real>;

  template <class Real>
  Coefficients<Real> coefficients_at(const StepContext& context) const {
    if (!context.momentum) return {spec(), context.learning_rate, context.step};
    return {spec_at(spec(), context), context.learning_rate, context.step};
  }

  void step_plain(const at::Tensor& weight, const at::Tensor& gradient, at::Tensor& new_weight,
                  std::span<at::Tensor> state, const StepContext& context) const {
    const at::Tensor plain = plain_gradient(gradient);
    const auto numbers = [](const at::Tensor& tensor) { return tensor.data_ptr<float>(); };
    const float* from = numbers(weight);
    const float* gradients = numbers(plain);
    float* to = numbers(new_weight);
    std::array<float*, Formula::kStates> kept;
    for (size_t s = 0; s < kept.size(); ++s) kept[s] = numbers(state[s]);
    const auto coefficients = coefficients_at<float>(context);
    const auto run = [&](int64_t begin, int64_t end) {
      auto part = kept;
      for (float*& first : part) first += begin;
      plain_step<Formula>(from + begin, gradients + begin, to + begin, part, end - begin,
                          coefficients);
    };
    if (weight.numel() <= kGrain) return run(0, weight.numel());
    by_threads(weight.numel(), std::cref(run));
  }

  void step_lists(WeightLists lists, const StepContext& context) const {
    const c10::AutoGradMode no_grad(false);
    const auto coefficients = coefficients_at<double>(context);
    if (step_in_one_operation<Formula>(lists, coefficients)) return;
    std::array<TensorList, Formula::kStates> state;
    std::move(lists.state.begin(), lists.state.end(), state.begin());
    Formula::step(lists.weights, lists.gradients, state, coefficients);
  }
};

}  // namespace penstock::model::detail
