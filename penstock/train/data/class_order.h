// In which order the folders of classes count as class 0, 1, ...
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace penstock::train {

enum class ClassOrder : uint8_t {
  Text,     ///< "1", "10", "2": torchvision's
  Numbers,  ///< "1", "2", "10": as people count; timm's
};

/// In the order of ClassOrder.
inline constexpr std::array<std::string_view, 2> kClassOrders = {"text", "numbers"};

}  // namespace penstock::train
