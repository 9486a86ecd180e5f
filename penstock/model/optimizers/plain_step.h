// An optimiser's step over plain memory: one pass, every number read and written once. Torch-free.
//
//   plain_step<SgdFormula<Momentum::None>>(weight, gradient, new_weight, {}, count, coefficients);
#pragma once

#include <array>
#include <cstdint>

namespace penstock::model::detail {

/// `new_weight` is `weight` or does not overlap it; the state is changed in place.
template <class Formula>
void plain_step(const float* weight, const float* gradient, float* new_weight,
                std::array<float*, Formula::kStates> state, int64_t count,
                const typename Formula::template Coefficients<float>& coefficients);

}  // namespace penstock::model::detail
