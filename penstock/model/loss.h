// The training losses. Gradients are scaled by samples, not by micro-batches, so a mini-batch cut
// into unequal micro-batches has the same gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace penstock::model {

struct LossResult {
  /// Differentiable scalar: sum over the micro-batch's samples / `mini_batch_samples`.
  at::Tensor scaled_loss;
  double loss_sum = 0;  ///< sum of the samples' losses
  int64_t correct = 0;  ///< samples whose largest logit is the target's
  int64_t targets = 0;  ///< of pixel_cross_entropy(): pixels that have one
};

/// Softmax cross-entropy of logits [batch, classes] against targets [batch] (int64). Throws
/// ConfigError when the shapes disagree or a target is out of range.
LossResult cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                         int64_t mini_batch_samples);

/// Cross-entropy per pixel: logits [batch, classes, height, width] against targets [batch, height,
/// width] (int64); the mean over the pixels that have a target, times the samples. Pixels whose
/// target is kNoTarget count nothing. `correct` is the number of pixels whose largest logit is the
/// target's. On the CPU. Throws ConfigError as cross_entropy().
LossResult pixel_cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                               int64_t mini_batch_samples);
inline constexpr int64_t kNoTarget = -100;  ///< as PyTorch's ignore_index

/// Mean of the squared differences of a sample's numbers, summed over the samples; targets of the
/// output's shape, float32. Throws ConfigError when the shapes disagree.
LossResult mean_squared_error(const at::Tensor& output, const at::Tensor& targets,
                              int64_t mini_batch_samples);

/// What makes a loss of the model's output: one of the above, or the user's own.
using Loss = std::function<LossResult(const at::Tensor& output, const at::Tensor& targets,
                                      int64_t mini_batch_samples)>;

}  // namespace penstock::model
