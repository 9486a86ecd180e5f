#include "penstock/util/numbers/block_int8.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cstring>

namespace penstock {
namespace {

constexpr auto kBlock = static_cast<size_t>(kInt8Block);
constexpr uint32_t kInfinity = 0x7F80'0000;
constexpr uint16_t kNan = 0x7FC0;
constexpr float kMost = 127;

uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }
float widened(uint16_t scale) { return std::bit_cast<float>(uint32_t{scale} << 16); }

/// As bfloat16. What is below float32's normal numbers is no scale: the block becomes zeros.
uint16_t scale_of(const float* from, size_t count) {
  // As whole numbers magnitudes have the same order, NaN above all.
  uint32_t largest = 0;
  for (size_t i = 0; i < count; ++i) largest = std::max(largest, bits_of(from[i]) & 0x7FFF'FFFFU);
  if (largest >= kInfinity) return kNan;
  const float scale = std::bit_cast<float>(largest) / kMost;
  return scale < FLT_MIN ? uint16_t{0} : static_cast<uint16_t>((bits_of(scale) + 0xFFFF) >> 16);
}

/// Every bit depends on every bit of the place. Source: C. Wellons, "Prospecting for hash
/// functions", 2018: lowbias32.
uint32_t mixed(uint32_t place) {
  place ^= place >> 16;
  place *= 0x7FEB'352DU;
  place ^= place >> 15;
  place *= 0x846C'A68BU;
  return place ^ place >> 16;
}

/// In [0, 1).
float uniform(uint32_t seed, uint32_t place) {
  return static_cast<float>(mixed(seed + place * 0x9E37'79B9U) >> 8) * 0x1p-24F;
}

int8_t clamped(float whole) {
  return static_cast<int8_t>(static_cast<int32_t>(std::clamp(whole, -kMost, kMost)));
}

/// To the nearest, ties to even.
int8_t nearest(float value) {
  constexpr float kShift = 0x1.8p23F;  // beyond it float32 has no fraction
  return clamped((value + kShift) - kShift);
}

int8_t at_random(float value, float u) {
  const float raised = value + u;
  const auto whole = static_cast<float>(static_cast<int32_t>(raised));
  return clamped(whole > raised ? whole - 1 : whole);
}

}  // namespace

void to_block_int8(const float* from, size_t count, std::byte* to, std::optional<uint32_t> seed) {
  std::byte* const scales = to;
  auto* const numbers = reinterpret_cast<int8_t*>(to + (block_int8_bytes(count) - count));
  for (size_t begin = 0, block = 0; begin < count; begin += kBlock, ++block) {
    const size_t length = std::min(kBlock, count - begin);
    const uint16_t scale = scale_of(from + begin, length);
    std::memcpy(scales + 2 * block, &scale, 2);
    if (scale == 0 || scale == kNan) {
      std::memset(numbers + begin, 0, length);
      continue;
    }
    const float inverse = 1 / widened(scale);
    if (seed) {
      for (size_t i = begin; i < begin + length; ++i)
        numbers[i] = at_random(from[i] * inverse, uniform(*seed, static_cast<uint32_t>(i)));
    } else {
      for (size_t i = begin; i < begin + length; ++i) numbers[i] = nearest(from[i] * inverse);
    }
  }
}

void from_block_int8(const std::byte* from, size_t count, float* to) {
  const auto* const numbers =
      reinterpret_cast<const int8_t*>(from + (block_int8_bytes(count) - count));
  for (size_t begin = 0, block = 0; begin < count; begin += kBlock, ++block) {
    uint16_t scale = 0;
    std::memcpy(&scale, from + 2 * block, 2);
    const float by = widened(scale);
    const size_t end = std::min(count, begin + kBlock);
    for (size_t i = begin; i < end; ++i) to[i] = static_cast<float>(numbers[i]) * by;
  }
}

}  // namespace penstock
