#include "penstock/util/numbers/precision.h"

#include <gtest/gtest.h>

#include <string>

#include "penstock/util/error.h"

namespace penstock {
namespace {

TEST(Precision, NamesParseBack) {
  for (const Precision precision : kPrecisions)
    EXPECT_EQ(parse_precision(to_string(precision)), precision);
  EXPECT_EQ(to_string(Precision::Tf32), "tf32");
}

TEST(Precision, OnlyTheTwoOf16BitsAreShort) {
  EXPECT_FALSE(is_short(Precision::Float32));
  EXPECT_FALSE(is_short(Precision::Tf32));
  EXPECT_TRUE(is_short(Precision::BFloat16));
  EXPECT_TRUE(is_short(Precision::Float16));
  EXPECT_FALSE(scales_loss(Precision::BFloat16));
  EXPECT_TRUE(scales_loss(Precision::Float16));
}

TEST(Precision, RefusesAnotherNameAndListsTheNames) {
  try {
    parse_precision("fp16");
    FAIL() << "expected ConfigError";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("'fp16'"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("float32, tf32, bfloat16, float16"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace penstock
