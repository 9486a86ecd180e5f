#include "penstock/util/numbers/block_int8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "penstock/util/numbers/rng.h"

namespace penstock {
namespace {

std::vector<float> random_numbers(size_t count, float size, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> numbers(count);
  for (float& number : numbers) number = size * static_cast<float>(2 * rng.uniform() - 1);
  return numbers;
}

std::vector<float> there_and_back(const std::vector<float>& numbers,
                                  std::optional<uint32_t> seed = {}) {
  std::vector<std::byte> coded(block_int8_bytes(numbers.size()));
  to_block_int8(numbers.data(), numbers.size(), coded.data(), seed);
  std::vector<float> back(numbers.size());
  from_block_int8(coded.data(), numbers.size(), back.data());
  return back;
}

/// At least the block's scale.
double scale_bound(const std::vector<float>& numbers, size_t place) {
  const size_t begin = place / 64 * 64;
  double largest = 0;
  for (size_t i = begin; i < std::min(begin + 64, numbers.size()); ++i)
    largest = std::max(largest, std::abs(double{numbers[i]}));
  return largest / 127 * (1 + 0x1p-7);
}

TEST(BlockInt8, HasAByteForEachNumberAndTwoForEachBlock) {
  EXPECT_EQ(block_int8_bytes(0), 0U);
  EXPECT_EQ(block_int8_bytes(1), 3U);
  EXPECT_EQ(block_int8_bytes(64), 66U);
  EXPECT_EQ(block_int8_bytes(65), 69U);
  EXPECT_EQ(block_int8_bytes(1024), 1056U);
}

TEST(BlockInt8, IsOffByAtMostHalfOfTheBlocksScale) {
  for (const size_t count : {1, 63, 64, 65, 1000}) {
    for (const float size : {1e-30F, 1.0F, 3e30F}) {
      const std::vector<float> numbers = random_numbers(count, size, count);
      const std::vector<float> back = there_and_back(numbers);
      for (size_t i = 0; i < count; ++i) {
        EXPECT_LE(std::abs(double{back[i]} - double{numbers[i]}), 0.50001 * scale_bound(numbers, i))
            << count << " " << i;
      }
    }
  }
}

TEST(BlockInt8, ABlockDoesNotSpoilTheNext) {
  std::vector<float> numbers(128, 1e-3F);
  numbers[0] = 1e6F;
  const std::vector<float> back = there_and_back(numbers);
  EXPECT_EQ(back[1], 0);
  EXPECT_NEAR(back[64], 1e-3F, 1e-5F);
}

TEST(BlockInt8, RoundsAtRandomWithoutBiasAndRepeatably) {
  const std::vector<float> numbers = random_numbers(200, 1, 5);
  EXPECT_EQ(there_and_back(numbers, 7), there_and_back(numbers, 7));
  EXPECT_NE(there_and_back(numbers, 7), there_and_back(numbers, 8));
  constexpr int kDraws = 4000;
  std::vector<double> sums(numbers.size());
  for (uint32_t seed = 0; seed < kDraws; ++seed) {
    const std::vector<float> back = there_and_back(numbers, seed * 7919);
    for (size_t i = 0; i < numbers.size(); ++i) {
      EXPECT_LE(std::abs(double{back[i]} - double{numbers[i]}), 1.0001 * scale_bound(numbers, i));
      sums[i] += back[i];
    }
  }
  // The mean of so many draws is off by a scale / 2 / sqrt(draws) or so; here five times as much.
  for (size_t i = 0; i < numbers.size(); ++i) {
    EXPECT_NEAR(sums[i] / kDraws, numbers[i], 2.5 / std::sqrt(kDraws) * scale_bound(numbers, i))
        << i;
  }
}

TEST(BlockInt8, NumbersThatAreNotFiniteAreSeenAfterwards) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> numbers(130, 1);
    numbers[70] = bad;
    for (const std::optional<uint32_t> seed : {std::optional<uint32_t>(), std::optional(3U)}) {
      const std::vector<float> back = there_and_back(numbers, seed);
      EXPECT_TRUE(std::isnan(back[70]));
      EXPECT_TRUE(std::isnan(back[64]));
      EXPECT_NEAR(back[63], 1, 0.01);
      EXPECT_NEAR(back[128], 1, 0.01);
    }
  }
}

TEST(BlockInt8, ZerosAndTheSmallestNumbersAreZeros) {
  EXPECT_EQ(there_and_back(std::vector<float>(70)), std::vector<float>(70));
  EXPECT_EQ(there_and_back(std::vector<float>(70, 1e-40F), 1), std::vector<float>(70));
}

}  // namespace
}  // namespace penstock
