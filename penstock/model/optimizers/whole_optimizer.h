// Optimisers of whole weights: a number of the step depends on others of its weight, so that shares
// of a weight cannot be stepped apart (OptimizerTraits::needs_whole_weight).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "penstock/model/optimizer.h"

namespace penstock::model::detail {

/// Steps one weight after the other. On a GPU nothing waits for a number to come back.
class WholeOptimizer : public Optimizer {
 public:
  using Optimizer::Optimizer;

  void step(const at::Tensor& weight, const at::Tensor& gradient, at::Tensor& new_weight,
            std::span<at::Tensor> state, const StepContext& context) const final;
  void step_together(std::span<WeightStep> weights, const StepContext& context) const final;

 protected:
  /// Changes the weight and its state, in place and without a graph. The gradient has the weight's
  /// type and is not to be changed.
  virtual void change(at::Tensor& weight, const at::Tensor& gradient, std::span<at::Tensor> state,
                      const StepContext& context) const = 0;
  double rate(const StepContext& context) const {
    return context.learning_rate * spec().rate_factor;
  }
  double momentum(const StepContext& context) const {
    return context.momentum.value_or(spec().momentum);
  }
};

/// LAMB (You et al. 2020, algorithm 2): Adam's step with decay, as long as its weight says.
class Lamb final : public WholeOptimizer {
 public:
  using WholeOptimizer::WholeOptimizer;

 private:
  void change(at::Tensor& weight, const at::Tensor& gradient, std::span<at::Tensor> state,
              const StepContext& context) const override;
};

/// LARS (You et al. 2017, algorithm 1): SGD with momentum; `trust` is the paper's eta.
class Lars final : public WholeOptimizer {
 public:
  using WholeOptimizer::WholeOptimizer;

 private:
  void change(at::Tensor& weight, const at::Tensor& gradient, std::span<at::Tensor> state,
              const StepContext& context) const override;
};

/// Adafactor (Shazeer and Stern 2018, algorithms 4 and 5) as torch.optim has it: the rate is at
/// most 1 / sqrt(step), decay is taken off the weight.
class Adafactor final : public WholeOptimizer {
 public:
  using WholeOptimizer::WholeOptimizer;

 private:
  void change(at::Tensor& weight, const at::Tensor& gradient, std::span<at::Tensor> state,
              const StepContext& context) const override;
};

/// Muon (Jordan et al. 2024) as torch.optim has it: a matrix's momentum, made about orthogonal in
/// bfloat16. Weights are matrices, [rows, columns].
class Muon final : public WholeOptimizer {
 public:
  using WholeOptimizer::WholeOptimizer;

 private:
  void change(at::Tensor& weight, const at::Tensor& gradient, std::span<at::Tensor> state,
              const StepContext& context) const override;
};

/// SOAP (Vyas et al. 2024, algorithm 3): Adam in the eigenbases of Shampoo's preconditioners. The
/// pairs of rows are the mean of G G^T with beta2 as its old value's share, those of columns of
/// G^T G; every OptimizerSpec::basis_every steps their bases take a step of orthogonal iteration
/// (algorithm 4) in the order of their eigenvalues, which the second moments follow. The first step
/// only makes bases, by eigh, and moves no weight. As in Adam epsilon is added to the corrected
/// root. On a GPU the bases wait for their decompositions. Weights are matrices, [rows, columns].
class Soap final : public WholeOptimizer {
 public:
  using WholeOptimizer::WholeOptimizer;

 private:
  void change(at::Tensor& weight, const at::Tensor& gradient, std::span<at::Tensor> state,
              const StepContext& context) const override;
};

}  // namespace penstock::model::detail
