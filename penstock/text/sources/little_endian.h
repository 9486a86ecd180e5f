// Whole numbers out of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace penstock::text {

/// `size` bytes from `at` on, the lowest first. They must be there.
inline uint32_t little_endian(std::string_view bytes, size_t at, int size = 4) {
  uint32_t value = 0;
  for (int i = size - 1; i >= 0; --i)
    value = value << 8 | static_cast<unsigned char>(bytes[at + static_cast<size_t>(i)]);
  return value;
}

}  // namespace penstock::text
