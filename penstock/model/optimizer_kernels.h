// The optimisers' inner loops over plain memory: one pass, every number read and written once.
// Torch-free.
#pragma once

#include <cstdint>

namespace penstock::model::detail {

struct SgdStep {
  float learning_rate;
  float momentum;
  float weight_decay;
  bool nesterov = false;
};

struct AdamStep {
  float step_size;            ///< learning rate / (1 - beta1^step)
  float second_moment_scale;  ///< 1 / sqrt(1 - beta2^step)
  float beta1;
  float beta2;
  float epsilon;
  float weight_decay;  ///< added to the gradient (Adam)
  float kept;          ///< of the weight before the step: 1 - learning rate * decay (AdamW), or 1
};

/// g = gradient + decay * weight;  momentum = m * momentum + g;
/// new_weight = weight - lr * momentum, or with nesterov weight - lr * (g + m * momentum).
/// `new_weight` is `weight` or does not overlap it. `momentum` may be null when step.momentum is 0.
void sgd(const float* weight, const float* gradient, float* new_weight, float* momentum,
         int64_t count, const SgdStep& step);

/// torch.optim.Adam and AdamW, without amsgrad. `new_weight` is `weight` or does not overlap it.
void adam(const float* weight, const float* gradient, float* new_weight, float* first_moment,
          float* second_moment, int64_t count, const AdamStep& step);

}  // namespace penstock::model::detail
