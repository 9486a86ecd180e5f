// What sequences of different lengths are padded to.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace penstock::train {

enum class Lengths : uint8_t {
  Whole,     ///< every sample is padded to the model's inputs
  Batch,     ///< to the longest of its mini-batch
  Bucketed,  ///< likewise, and a mini-batch has samples of like length
};

/// In the order of Lengths.
inline constexpr std::array<std::string_view, 3> kLengths = {"whole", "batch", "bucketed"};

}  // namespace penstock::train
