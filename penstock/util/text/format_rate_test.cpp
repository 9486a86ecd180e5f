#include "penstock/util/text/format_rate.h"

#include <gtest/gtest.h>

#include <limits>

namespace penstock {
namespace {

TEST(FormatRate, HasThousandsApartAndThreeDigitsBelow100) {
  EXPECT_EQ(format_rate(1050.4), "1,050");
  EXPECT_EQ(format_rate(999.6), "1,000");
  EXPECT_EQ(format_rate(1234567), "1,234,567");
  EXPECT_EQ(format_rate(123), "123");
  EXPECT_EQ(format_rate(99.96), "100");
  EXPECT_EQ(format_rate(99.94), "99.9");
  EXPECT_EQ(format_rate(20), "20.0");
  EXPECT_EQ(format_rate(4.567), "4.57");
  EXPECT_EQ(format_rate(0.5218), "0.522");
  EXPECT_EQ(format_rate(0.01234), "0.0123");
  EXPECT_EQ(format_rate(0), "0");
  EXPECT_EQ(format_rate(1e18), "1e+18");
  EXPECT_EQ(format_rate(std::numeric_limits<double>::infinity()), "-");
}

}  // namespace
}  // namespace penstock
