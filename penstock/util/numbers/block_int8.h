// Numbers of 8 bits with a scale for each 64 of them, in which values travel between stages. Pure
// functions, thread-safe; the same bits on every machine.
//
//   std::vector<std::byte> sent(block_int8_bytes(count));
//   to_block_int8(values, count, sent.data());
//   from_block_int8(sent.data(), count, values);
//
// A block is 64 consecutive numbers, the last one fewer. Its scale s is the largest magnitude
// divided by 127, rounded up to bfloat16; each number x becomes the whole number q nearest to x /
// s, from -127 to 127, and comes back as q s. So no number is off by more than s / 2. With a seed q
// is floor(x / s + u) instead, u drawn from [0, 1): x comes back right in the mean over seeds, and
// off by less than s. A block with a number that is not finite comes back as NaN, so that nobody
// takes it for good.
//
// Bytes: 2 per block, the scales, and then 1 per number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace penstock {

inline constexpr int64_t kInt8Block = 64;

constexpr size_t block_int8_bytes(size_t count) {
  constexpr auto kBlock = static_cast<size_t>(kInt8Block);
  return count + 2 * ((count + kBlock - 1) / kBlock);
}

/// `to`: block_int8_bytes(count) bytes that do not overlap `from`. O(count).
void to_block_int8(const float* from, size_t count, std::byte* to,
                   std::optional<uint32_t> seed = {});
void from_block_int8(const std::byte* from, size_t count, float* to);

}  // namespace penstock
