// The training loss. Gradients are scaled by samples, not by micro-batches, so a mini-batch cut
// into unequal micro-batches has the same gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace penstock::model {

struct LossResult {
  /// Differentiable scalar: sum over the micro-batch's samples / `mini_batch_samples`.
  at::Tensor scaled_loss;
  double loss_sum = 0;  ///< sum of the samples' losses
  int64_t correct = 0;  ///< samples whose largest logit is the target's
};

/// Softmax cross-entropy of logits [batch, classes] against targets [batch] (int64). Throws
/// ConfigError when the shapes disagree or a target is out of range.
LossResult cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                         int64_t mini_batch_samples);

}  // namespace penstock::model
