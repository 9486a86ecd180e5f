// The mean loss of several mini-batches. Internal to train.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "penstock/model/counts_targets.h"
#include "penstock/runtime/fabric/mini_batch_stats.h"
#include "penstock/train/train_options.h"

namespace penstock::train {

/// Over all targets that count, however they are spread over the mini-batches, each of which has a
/// mean over its own.
struct LossMean {
  double sum = 0;
  int64_t targets = 0;

  void add(const runtime::MiniBatchStats& stats, int64_t mini_batch_targets) {
    // One target per sample: the sum as it is, without rounding.
    sum += mini_batch_targets == stats.samples
               ? stats.loss_sum
               : stats.mean_loss() * static_cast<double>(mini_batch_targets);
    targets += mini_batch_targets;
  }
  double mean() const { return sum / static_cast<double>(std::max<int64_t>(targets, 1)); }
};

/// For a run whose numbers are no longer finite; empty where gradients cannot be the reason.
inline std::string advice_on_float16(const plan::Plan& plan) {
  if (scales_loss(plan.precision)) {
    return "; under the precision float16 an activation beyond 65504 becomes infinite, and "
           "bfloat16 has no such limit";
  }
  const std::vector<int> replicas = plan.replicas();
  const bool sums = std::any_of(replicas.begin(), replicas.end(), [](int r) { return r > 1; });
  if (!sums || plan.gradient_precision != FloatType::Float16) return {};
  return "; under the sync precision float16 a gradient beyond 65504 becomes infinite, and "
         "bfloat16 has no such limit";
}

/// For a run whose numbers are no longer finite, where copies train by themselves (diloco).
inline constexpr const char* kAdviceOnRounds =
    "; so may a smaller outer learning rate or outer momentum, with which the copies of diloco "
    "meet";
inline std::string advice_on_rounds(const plan::Plan& plan) {
  return plan.sync == plan::GradientSync::DiLoCo ? kAdviceOnRounds : "";
}

/// For a run whose loss is no longer finite: a model that returns its loss makes one of each
/// micro-batch, and one without targets has none. Empty where that cannot be the reason.
inline std::string advice_on_own_loss(const model::Model& model, const TrainOptions& options) {
  const bool weighs_targets = static_cast<bool>(model::target_count(model));
  if (!model.returns_loss() || weighs_targets || options.plan.micro_batches < 2) return {};
  return "; the model makes its own loss of each micro-batch, and one whose targets are all "
         "ignored "
         "has none: fewer micro-batches, or a model without labels and the loss cross-entropy, "
         "would mend that";
}

}  // namespace penstock::train
