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

// Without branches, so that loops over them become vector instructions.

inline uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }
inline float widened(uint16_t scale) { return std::bit_cast<float>(uint32_t{scale} << 16); }

/// As bfloat16. What is below float32's normal numbers is no scale: the block becomes zeros.
uint16_t scale_of(const float* from, size_t count) {
  // As whole numbers magnitudes have the same order, NaN above all.
  int32_t largest = 0;
#pragma omp simd reduction(max : largest)
  for (size_t i = 0; i < count; ++i) {
    const auto size = static_cast<int32_t>(bits_of(from[i]) & 0x7FFF'FFFFU);
    largest = size > largest ? size : largest;
  }
  const auto bits = static_cast<uint32_t>(largest);
  if (bits >= kInfinity) return kNan;
  const float scale = std::bit_cast<float>(bits) / kMost;
  return scale < FLT_MIN ? uint16_t{0} : static_cast<uint16_t>((bits_of(scale) + 0xFFFF) >> 16);
}

/// Every bit depends on every bit of the place. Source: C. Wellons, "Prospecting for hash
/// functions", 2018: lowbias32.
[[gnu::always_inline]] inline uint32_t mixed(uint32_t place) {
  place ^= place >> 16;
  place *= 0x7FEB'352DU;
  place ^= place >> 15;
  place *= 0x846C'A68BU;
  return place ^ place >> 16;
}

/// In [0, 1).
[[gnu::always_inline]] inline float uniform(uint32_t seed, uint32_t place) {
  const uint32_t bits = mixed(seed + place * 0x9E37'79B9U) >> 8;
  return static_cast<float>(static_cast<int32_t>(bits)) * 0x1p-24F;
}

[[gnu::always_inline]] inline int8_t clamped(float whole) {
  const float above = whole < -kMost ? -kMost : whole;
  const float within = above > kMost ? kMost : above;
  return static_cast<int8_t>(static_cast<int32_t>(within));
}

/// To the nearest, ties to even.
[[gnu::always_inline]] inline int8_t nearest(float value) {
  constexpr float kShift = 0x1.8p23F;  // beyond it float32 has no fraction
  return clamped((value + kShift) - kShift);
}

/// The largest whole number that is no larger than their sum.
[[gnu::always_inline]] inline int8_t at_random(float value, float u) {
  const float raised = value + u;
  const auto towards_zero = static_cast<int32_t>(raised);
  const float rest = raised - static_cast<float>(towards_zero);
  const int32_t whole = towards_zero + (std::bit_cast<int32_t>(rest) >> 31);
  const int32_t above = whole < -127 ? -127 : whole;
  return static_cast<int8_t>(above > 127 ? 127 : above);
}

void code_nearest(const float* from, size_t count, float inverse, int8_t* to) {
#pragma omp simd
  for (size_t i = 0; i < count; ++i) to[i] = nearest(from[i] * inverse);
}

/// `place`: of the first number, in the whole value.
void code_at_random(const float* from, size_t count, float inverse, uint32_t seed, uint32_t place,
                    int8_t* to) {
#pragma omp simd
  for (size_t i = 0; i < count; ++i)
    to[i] = at_random(from[i] * inverse, uniform(seed, place + static_cast<uint32_t>(i)));
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
      code_at_random(from + begin, length, inverse, *seed, static_cast<uint32_t>(begin),
                     numbers + begin);
    } else {
      code_nearest(from + begin, length, inverse, numbers + begin);
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
#pragma omp simd
    for (size_t i = begin; i < end; ++i) to[i] = static_cast<float>(numbers[i]) * by;
  }
}

}  // namespace penstock
