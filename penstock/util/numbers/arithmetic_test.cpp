#include "penstock/util/numbers/arithmetic.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "penstock/util/numbers/common_multiple.h"

namespace penstock {
namespace {

constexpr int64_t kMax = INT64_MAX;
constexpr int64_t kMin = INT64_MIN;

TEST(CheckedArithmetic, GivesTheResultWhenItFits) {
  EXPECT_EQ(checked_add(2, -5), -3);
  EXPECT_EQ(checked_mul(-4, 6), -24);
  EXPECT_EQ(checked_add(kMax - 1, 1), kMax);
}

TEST(CommonMultiple, IsTheSmallestUnlessThatIsTooLarge) {
  EXPECT_EQ(common_multiple({}), 1);
  EXPECT_EQ(common_multiple({4, 6, 1}), 12);
  EXPECT_EQ(common_multiple({4, 6}, 12), 12);
  EXPECT_EQ(common_multiple({4, 6}, 11), std::nullopt);
  EXPECT_EQ(common_multiple({2'147'483'647, 2'147'483'646, 2'147'483'645}), std::nullopt);
}

TEST(CheckedArithmetic, GivesNothingOnOverflow) {
  EXPECT_EQ(checked_add(kMax, 1), std::nullopt);
  EXPECT_EQ(checked_add(kMin, -1), std::nullopt);
  EXPECT_EQ(checked_mul(kMax, 2), std::nullopt);
  EXPECT_EQ(checked_mul(kMin, -1), std::nullopt);
}

TEST(SaturatingArithmetic, StopsAtTheEnds) {
  EXPECT_EQ(saturating_add(kMax, kMax), kMax);
  EXPECT_EQ(saturating_add(kMin, -1), kMin);
  EXPECT_EQ(saturating_mul(kMax, kMax), kMax);
  EXPECT_EQ(saturating_mul(kMax, -2), kMin);
  EXPECT_EQ(saturating_mul(kMin, kMin), kMax);
  EXPECT_EQ(saturating_mul(kMin, 0), 0);
}

TEST(CeilDiv, RoundsUp) {
  EXPECT_EQ(ceil_div(0, 3), 0);
  EXPECT_EQ(ceil_div(6, 3), 2);
  EXPECT_EQ(ceil_div(7, 3), 3);
  EXPECT_EQ(ceil_div(kMax, 1), kMax);
}

RC_GTEST_PROP(SaturatingArithmetic, EqualsWideArithmeticClamped, (int64_t a, int64_t b)) {
  const auto clamped = [](__int128 value) {
    return static_cast<int64_t>(value > kMax ? kMax : value < kMin ? kMin : value);
  };
  RC_ASSERT(saturating_add(a, b) == clamped(static_cast<__int128>(a) + b));
  RC_ASSERT(saturating_mul(a, b) == clamped(static_cast<__int128>(a) * b));
}

}  // namespace
}  // namespace penstock
