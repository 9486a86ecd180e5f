// The formulas of optimisers in double precision, one number at a time: those of torch.optim, and
// of the papers of LAMB and LARS. For tests.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "penstock/model/optimizer.h"

namespace penstock::model::reference {

using Numbers = std::vector<double>;

inline Numbers numbers(const at::Tensor& tensor) {
  const at::Tensor doubles = tensor.detach().to(at::kDouble).contiguous();
  return {doubles.data_ptr<double>(), doubles.data_ptr<double>() + doubles.numel()};
}

inline double norm_of(const Numbers& numbers) {
  double sum = 0;
  for (const double number : numbers) sum += number * number;
  return std::sqrt(sum);
}

class ReferenceOptimizer {
 public:
  ReferenceOptimizer(OptimizerSpec spec, const at::Tensor& weight)
      : spec_(std::move(spec)), weight_(numbers(weight)) {
    for (const OptimizerState& state : states(spec_)) {
      const double initial = state.initial == nullptr ? 0 : spec_.*state.initial;
      state_[std::string(state.name)] = Numbers(weight_.size(), initial);
    }
  }

  const Numbers& weight() const { return weight_; }

  void step(const at::Tensor& gradient, const StepContext& context) {
    Numbers gradients = numbers(gradient);
    if (spec_.maximize) {
      for (double& g : gradients) g = -g;
    }
    rate_ = context.learning_rate * spec_.rate_factor;
    step_ = static_cast<double>(context.step);
    if (spec_.kind == OptimizerKind::Lamb) return lamb(gradients);
    if (spec_.kind == OptimizerKind::Lars) return lars(gradients);
    for (size_t i = 0; i < weight_.size(); ++i) step_number(i, gradients[i]);
  }

 private:
  double& state(const char* name, size_t i) { return state_.at(name)[i]; }
  static void move(double& average, double share, double to) { average += share * (to - average); }

  /// The weight's decay, in the gradient or at once.
  double decayed(size_t i, double g, bool decoupled) {
    if (!decoupled) return g + spec_.weight_decay * weight_[i];
    weight_[i] *= 1 - rate_ * spec_.weight_decay;
    return g;
  }

  void step_number(size_t i, double g) {
    switch (spec_.kind) {
      case OptimizerKind::Sgd:
        return sgd(i, decayed(i, g, false));
      case OptimizerKind::Adam:
        return adam(i, decayed(i, g, false));
      case OptimizerKind::AdamW:
        return adam(i, decayed(i, g, true));
      case OptimizerKind::NAdam:
        return nadam(i, decayed(i, g, false));
      case OptimizerKind::NAdamW:
        return nadam(i, decayed(i, g, true));
      case OptimizerKind::RmsProp:
        return rms_prop(i, decayed(i, g, false));
      case OptimizerKind::Adagrad:
        return adagrad(i, decayed(i, g, false));
      case OptimizerKind::Lion:
        return lion(i, decayed(i, g, true));
      default:
        return asgd(i, decayed(i, g, false));
    }
  }

  void sgd(size_t i, double g) {
    if (spec_.momentum == 0) {
      weight_[i] -= rate_ * g;
      return;
    }
    double& momentum = state("momentum", i);
    momentum = spec_.momentum * momentum + g;
    weight_[i] -= rate_ * (spec_.nesterov ? g + spec_.momentum * momentum : momentum);
  }

  double second_root(size_t i, double g) {
    double& second = state("exp_avg_sq", i);
    move(second, 1 - spec_.beta2, g * g);
    double used = second;
    if (spec_.amsgrad) {
      double& largest = state("max_exp_avg_sq", i);
      used = largest = std::max(largest, second);
    }
    return std::sqrt(used / (1 - std::pow(spec_.beta2, step_))) + spec_.epsilon;
  }

  void adam(size_t i, double g) {
    double& first = state("exp_avg", i);
    move(first, 1 - spec_.beta1, g);
    weight_[i] -= rate_ / (1 - std::pow(spec_.beta1, step_)) * first / second_root(i, g);
  }

  double momentum_at(double step) const {
    return spec_.beta1 * (1 - 0.5 * std::pow(0.96, step * spec_.momentum_decay));
  }

  void nadam(size_t i, double g) {
    double product = 1;
    for (double k = 1; k <= step_; ++k) product *= momentum_at(k);
    double& first = state("exp_avg", i);
    move(first, 1 - spec_.beta1, g);
    const double root = second_root(i, g);
    const double next = momentum_at(step_ + 1);
    weight_[i] -= rate_ * (1 - momentum_at(step_)) / (1 - product) * g / root;
    weight_[i] -= rate_ * next / (1 - product * next) * first / root;
  }

  void rms_prop(size_t i, double g) {
    double& square = state("square_avg", i);
    move(square, 1 - spec_.alpha, g * g);
    double variance = square;
    if (spec_.centered) {
      double& mean = state("grad_avg", i);
      move(mean, 1 - spec_.alpha, g);
      variance = std::max(square - mean * mean, 0.0);
    }
    double direction = g / (std::sqrt(variance) + spec_.epsilon);
    if (spec_.momentum > 0) {
      double& momentum = state("momentum", i);
      direction = momentum = spec_.momentum * momentum + direction;
    }
    weight_[i] -= rate_ * direction;
  }

  void adagrad(size_t i, double g) {
    double& sum = state("sum", i);
    sum += g * g;
    weight_[i] -=
        rate_ / (1 + (step_ - 1) * spec_.rate_decay) * g / (std::sqrt(sum) + spec_.epsilon);
  }

  void lion(size_t i, double g) {
    double& average = state("exp_avg", i);
    const double direction = spec_.beta1 * average + (1 - spec_.beta1) * g;
    weight_[i] -= rate_ * ((direction > 0 ? 1 : 0) - (direction < 0 ? 1 : 0));
    move(average, 1 - spec_.beta2, g);
  }

  void asgd(size_t i, double g) {
    const double eta = rate_ / std::pow(1 + spec_.lambda * rate_ * (step_ - 1), spec_.power);
    weight_[i] = weight_[i] * (1 - spec_.lambda * eta) - eta * g;
    move(state("ax", i), 1 / std::max(1.0, step_ - 1 - spec_.average_from), weight_[i]);
  }

  void lamb(const Numbers& gradients) {
    Numbers update(weight_.size());
    for (size_t i = 0; i < weight_.size(); ++i) {
      double& first = state("exp_avg", i);
      move(first, 1 - spec_.beta1, gradients[i]);
      update[i] = first / (1 - std::pow(spec_.beta1, step_)) / second_root(i, gradients[i]) +
                  spec_.weight_decay * weight_[i];
    }
    const double size = norm_of(weight_);
    const double length = norm_of(update);
    const double ratio = size > 0 && length > 0 ? size / length : 1;
    for (size_t i = 0; i < weight_.size(); ++i) weight_[i] -= rate_ * ratio * update[i];
  }

  void lars(const Numbers& gradients) {
    const double size = norm_of(weight_);
    const double length = norm_of(gradients) + spec_.weight_decay * size;
    const double ratio = size > 0 && length > 0 ? spec_.trust * size / length : 1;
    for (size_t i = 0; i < weight_.size(); ++i) {
      double& momentum = state("momentum", i);
      momentum = spec_.momentum * momentum +
                 rate_ * ratio * (gradients[i] + spec_.weight_decay * weight_[i]);
      weight_[i] -= momentum;
    }
  }

  OptimizerSpec spec_;
  Numbers weight_;
  std::map<std::string, Numbers> state_;
  double rate_ = 0;
  double step_ = 1;
};

/// Of each kind that steps numbers apart, with each of its states.
inline std::vector<OptimizerSpec> number_wise_specs() {
  std::vector<OptimizerSpec> specs = {
      {.kind = OptimizerKind::Sgd, .momentum = 0.9, .weight_decay = 0.01},
      {.kind = OptimizerKind::Sgd, .momentum = 0.8, .nesterov = true, .weight_decay = 0.01},
      {.kind = OptimizerKind::Sgd, .momentum = 0},
      {.kind = OptimizerKind::Sgd, .momentum = 0, .weight_decay = 0.1, .maximize = true},
      {.kind = OptimizerKind::Adam},
      {.kind = OptimizerKind::Adam, .weight_decay = 0.01, .beta1 = 0.8, .beta2 = 0.95},
      {.kind = OptimizerKind::Adam, .beta2 = 0.5, .amsgrad = true},
      {.kind = OptimizerKind::AdamW, .weight_decay = 0.1},
      {.kind = OptimizerKind::AdamW, .beta1 = 0.8, .beta2 = 0.95, .maximize = true},
      {.kind = OptimizerKind::AdamW, .weight_decay = 0.1, .beta2 = 0.5, .amsgrad = true},
      {.kind = OptimizerKind::NAdam, .weight_decay = 0.01, .momentum_decay = 0.1},
      {.kind = OptimizerKind::NAdamW, .weight_decay = 0.1},
      {.kind = OptimizerKind::RmsProp, .momentum = 0, .weight_decay = 0.01, .alpha = 0.9},
      {.kind = OptimizerKind::RmsProp, .momentum = 0.9, .epsilon = 0.01},
      {.kind = OptimizerKind::RmsProp, .momentum = 0, .epsilon = 0.01, .centered = true},
      {.kind = OptimizerKind::RmsProp, .momentum = 0.5, .epsilon = 0.1, .centered = true},
      {.kind = OptimizerKind::Adagrad, .weight_decay = 0.01, .initial_accumulator = 0.5},
      {.kind = OptimizerKind::Adagrad, .rate_decay = 0.1},
      {.kind = OptimizerKind::Lion, .weight_decay = 0.1, .beta2 = 0.99},
      {.kind = OptimizerKind::Asgd, .weight_decay = 0.01, .lambda = 0.1, .average_from = 1}};
  return specs;
}

/// Of kinds that step whole weights of any shape.
inline std::vector<OptimizerSpec> whole_weight_specs() {
  return {{.kind = OptimizerKind::Lamb, .weight_decay = 0.1},
          {.kind = OptimizerKind::Lamb, .beta1 = 0.8, .maximize = true},
          {.kind = OptimizerKind::Lars, .momentum = 0.9, .weight_decay = 0.01, .trust = 0.1},
          {.kind = OptimizerKind::Lars, .momentum = 0, .trust = 0.5}};
}

}  // namespace penstock::model::reference
