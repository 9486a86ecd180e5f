#include "penstock/util/numbers/rounding.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();

TEST(Rounding, NearestRoundsHalvesAwayFromZero) {
  EXPECT_EQ(nearest(2.5), 3);
  EXPECT_EQ(nearest(-2.5), -3);
  EXPECT_EQ(nearest(2.49), 2);
  EXPECT_EQ(nearest(0.49999999999999994), 0);
}

TEST(Rounding, UpAndDownGoToTheNextWholeNumber) {
  EXPECT_EQ(rounded_up(2.0), 2);
  EXPECT_EQ(rounded_up(2.1), 3);
  EXPECT_EQ(rounded_down(2.9), 2);
  EXPECT_EQ(rounded_down(-2.9), -2);
}

TEST(Rounding, TooLargeValuesBecomeTheEndOfTheRange) {
  for (const double value : {0x1p63, 1e300, HUGE_VAL, std::nan("")}) {
    EXPECT_EQ(nearest(value), kMost);
    EXPECT_EQ(rounded_up(value), kMost);
    EXPECT_EQ(rounded_down(value), kMost);
  }
  EXPECT_EQ(nearest(-0x1p63), kLeast);
  EXPECT_EQ(nearest(-1e300), kLeast);
  EXPECT_EQ(rounded_down(std::nextafter(0x1p63, 0.0)), kMost - 1023);
}

}  // namespace
}  // namespace penstock
