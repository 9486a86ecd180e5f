#include "penstock/runtime/loss_scale.h"

#include <algorithm>
#include <cmath>

#include "penstock/util/check.h"
#include "penstock/util/error.h"

namespace penstock::runtime {

namespace {

/// Beyond it the scaled loss itself would soon be infinite.
constexpr double kLargestScale = 16777216;  // 2^24

}  // namespace

double LossScale::at(int64_t version) const {
  PENSTOCK_CHECK(version >= 0 && version < static_cast<int64_t>(scales_.size()), version,
                 scales_.size());
  return scales_[static_cast<size_t>(version)];
}

bool LossScale::take(double norm) {
  const bool is_finite = std::isfinite(norm);
  if (is_finite) {
    if (++state_.good_steps >= kGrowthSteps) {
      state_.scale = std::min(2 * state_.scale, kLargestScale);
      state_.good_steps = 0;
    }
  } else {
    if (state_.scale <= 1) {
      throw RuntimeError(
          "the gradients are not finite in float16, although the loss is no longer scaled: the "
          "training diverges (a smaller learning rate may help) or needs bfloat16");
    }
    state_.scale /= 2;
    state_.good_steps = 0;
    ++state_.skipped;
  }
  scales_.push_back(state_.scale);
  return is_finite;
}

}  // namespace penstock::runtime
