// Optimisers as functions from one version of a weight to the next. The new version may be written
// over the old one or to other memory; the weight store decides (copy on write).
//
//   std::unique_ptr<Optimizer> sgd = make_optimizer({.momentum = 0.9});
//   sgd->step(weight, gradient, new_weight, state, {.learning_rate = 0.1, .step = 1});
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "penstock/model/optimizer_spec.h"

namespace penstock::model {

struct StepContext {
  double learning_rate = 0.01;
  int64_t step = 1;  ///< 1 for the first step (Adam's bias correction)
  /// How much of the mean of steps is kept (OptimizerSpec::mean_step).
  double mean_decay = 0;
  /// Instead of the spec's momentum_parameter(); nothing: the spec's.
  std::optional<double> momentum = {};
  /// With OptimizerSpec::averages: mean += share * (new weight - mean). 1: the mean begins anew.
  double average_share = 1;
};

/// One weight of a step.
struct WeightStep {
  at::Tensor weight = {};
  at::Tensor gradient = {};
  at::Tensor new_weight = {};  ///< may be the same memory as `weight`
  std::vector<at::Tensor> state = {};
};

class Optimizer {
 public:
  explicit Optimizer(OptimizerSpec spec) : spec_(std::move(spec)) {}
  virtual ~Optimizer() = default;

  const OptimizerSpec& spec() const { return spec_; }
  /// Names of the state tensors kept per weight: {"momentum"} or {"exp_avg", "exp_avg_sq"}.
  std::vector<std::string> state_names() const;
  /// The state of a weight before its first step, on the weight's device and in its type. `weight`
  /// may be a part of one (a share), unless traits(spec().kind).needs_whole_weight.
  std::vector<at::Tensor> new_state(const at::Tensor& weight) const;

  /// new_weight = update(weight, gradient, state); updates `state` in place. `new_weight` may be
  /// the same memory as `weight`. One pass over memory for contiguous float32 CPU tensors, using
  /// the calling thread's intra-op threads. Never touches autograd's version counters. Thread-safe.
  virtual void step(const at::Tensor& weight, const at::Tensor& gradient, at::Tensor& new_weight,
                    std::span<at::Tensor> state, const StepContext& context) const = 0;
  /// The same for several weights of one device and type, in a few operations for all of them
  /// together, as a GPU wants it. Equals step() up to rounding.
  virtual void step_together(std::span<WeightStep> weights, const StepContext& context) const = 0;

 private:
  OptimizerSpec spec_;
};

/// Without the groups of the spec (parameter_optimizers.h). Throws ConfigError for a value out of
/// range (momentum outside [0, 1), negative decay, ...) and for what the optimiser does not have.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerSpec& spec);

}  // namespace penstock::model
