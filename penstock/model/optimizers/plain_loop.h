// The loop of plain_step(), to be compiled as fast as it can be: plain_kernels.cpp makes one for
// each formula, with options of its own. Torch-free.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "penstock/model/optimizers/plain_step.h"

// One copy per instruction set, picked when the program is loaded. Sanitizers do not work with the
// resolvers that this needs.
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define PENSTOCK_CLONES __attribute__((target_clones("avx512f", "avx2,fma", "default")))
#else
#define PENSTOCK_CLONES
#endif

// No number of the loop depends on another one, whether the new weights overwrite the old ones or
// not. Compilers cannot know, and would choose a scalar loop when they do.
#ifdef __clang__
#define PENSTOCK_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define PENSTOCK_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace penstock::model::detail {

template <class Formula>
PENSTOCK_CLONES void plain_step(const float* weight, const float* gradient, float* new_weight,
                                std::array<float*, Formula::kStates> state, int64_t count,
                                const typename Formula::template Coefficients<float>& given) {
  const typename Formula::template Coefficients<float> coefficients = given;
  PENSTOCK_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) {
    float number = weight[i];
    std::array<float, Formula::kStates> kept;
    for (size_t s = 0; s < Formula::kStates; ++s) kept[s] = state[s][i];
    Formula::step(number, gradient[i], kept, coefficients);
    for (size_t s = 0; s < Formula::kStates; ++s) state[s][i] = kept[s];
    new_weight[i] = number;
  }
}

}  // namespace penstock::model::detail
