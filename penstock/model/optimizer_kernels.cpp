#include "penstock/model/optimizer_kernels.h"

#include <cmath>

// One copy per instruction set, picked when the program is loaded. Sanitizers do not work with the
// resolvers that this needs.
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define PENSTOCK_CLONES __attribute__((target_clones("avx512f", "avx2,fma", "default")))
#else
#define PENSTOCK_CLONES
#endif

namespace penstock::model::detail {
namespace {

// In-place and out-of-place variants are separate because __restrict would be wrong for the first,
// and without it the compiler's own overlap test selects the scalar loop for equal pointers.

PENSTOCK_CLONES void sgd_in_place(float* __restrict weight, const float* __restrict gradient,
                                  float* __restrict momentum, int64_t count, float lr, float m,
                                  float decay) {
  for (int64_t i = 0; i < count; ++i) {
    const float buffer = m * momentum[i] + (gradient[i] + decay * weight[i]);
    momentum[i] = buffer;
    weight[i] -= lr * buffer;
  }
}

PENSTOCK_CLONES void nesterov_in_place(float* __restrict weight, const float* __restrict gradient,
                                       float* __restrict momentum, int64_t count, float lr, float m,
                                       float decay) {
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] + decay * weight[i];
    const float buffer = m * momentum[i] + g;
    momentum[i] = buffer;
    weight[i] -= lr * (g + m * buffer);
  }
}

PENSTOCK_CLONES void sgd_out_of_place(const float* __restrict weight,
                                      const float* __restrict gradient,
                                      float* __restrict new_weight, float* __restrict momentum,
                                      int64_t count, float lr, float m, float decay) {
  for (int64_t i = 0; i < count; ++i) {
    const float buffer = m * momentum[i] + (gradient[i] + decay * weight[i]);
    momentum[i] = buffer;
    new_weight[i] = weight[i] - lr * buffer;
  }
}

PENSTOCK_CLONES void nesterov_out_of_place(const float* __restrict weight,
                                           const float* __restrict gradient,
                                           float* __restrict new_weight, float* __restrict momentum,
                                           int64_t count, float lr, float m, float decay) {
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] + decay * weight[i];
    const float buffer = m * momentum[i] + g;
    momentum[i] = buffer;
    new_weight[i] = weight[i] - lr * (g + m * buffer);
  }
}

PENSTOCK_CLONES void plain_sgd_in_place(float* __restrict weight, const float* __restrict gradient,
                                        int64_t count, float lr, float decay) {
  for (int64_t i = 0; i < count; ++i) weight[i] -= lr * (gradient[i] + decay * weight[i]);
}

PENSTOCK_CLONES void plain_sgd_out_of_place(const float* __restrict weight,
                                            const float* __restrict gradient,
                                            float* __restrict new_weight, int64_t count, float lr,
                                            float decay) {
  for (int64_t i = 0; i < count; ++i)
    new_weight[i] = weight[i] - lr * (gradient[i] + decay * weight[i]);
}

PENSTOCK_CLONES void adam_in_place(float* __restrict weight, const float* __restrict gradient,
                                   float* __restrict first, float* __restrict second, int64_t count,
                                   AdamStep s) {
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] + s.weight_decay * weight[i];
    const float mean = s.beta1 * first[i] + (1 - s.beta1) * g;
    const float square = s.beta2 * second[i] + (1 - s.beta2) * g * g;
    first[i] = mean;
    second[i] = square;
    weight[i] = weight[i] * s.kept -
                s.step_size * mean / (std::sqrt(square) * s.second_moment_scale + s.epsilon);
  }
}

PENSTOCK_CLONES void adam_out_of_place(const float* __restrict weight,
                                       const float* __restrict gradient,
                                       float* __restrict new_weight, float* __restrict first,
                                       float* __restrict second, int64_t count, AdamStep s) {
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] + s.weight_decay * weight[i];
    const float mean = s.beta1 * first[i] + (1 - s.beta1) * g;
    const float square = s.beta2 * second[i] + (1 - s.beta2) * g * g;
    first[i] = mean;
    second[i] = square;
    new_weight[i] = weight[i] * s.kept -
                    s.step_size * mean / (std::sqrt(square) * s.second_moment_scale + s.epsilon);
  }
}

}  // namespace

void sgd(const float* weight, const float* gradient, float* new_weight, float* momentum,
         int64_t count, const SgdStep& step) {
  const float lr = step.learning_rate;
  const float decay = step.weight_decay;
  if (momentum == nullptr) {
    if (weight == new_weight) return plain_sgd_in_place(new_weight, gradient, count, lr, decay);
    return plain_sgd_out_of_place(weight, gradient, new_weight, count, lr, decay);
  }
  const float m = step.momentum;
  if (weight == new_weight) {
    const auto in_place = step.nesterov ? nesterov_in_place : sgd_in_place;
    return in_place(new_weight, gradient, momentum, count, lr, m, decay);
  }
  const auto out_of_place = step.nesterov ? nesterov_out_of_place : sgd_out_of_place;
  out_of_place(weight, gradient, new_weight, momentum, count, lr, m, decay);
}

void adam(const float* weight, const float* gradient, float* new_weight, float* first_moment,
          float* second_moment, int64_t count, const AdamStep& step) {
  if (weight == new_weight)
    return adam_in_place(new_weight, gradient, first_moment, second_moment, count, step);
  adam_out_of_place(weight, gradient, new_weight, first_moment, second_moment, count, step);
}

}  // namespace penstock::model::detail
