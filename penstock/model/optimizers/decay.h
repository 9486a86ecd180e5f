// How weight decay enters a step.
#pragma once

#include <cstdint>

namespace penstock::model::detail {

/// What weight decay is taken from: the gradient (L2) or the weight itself.
enum class Decay : uint8_t { InGradient, OfWeight };

}  // namespace penstock::model::detail
