#include "penstock/util/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/mutate.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Check, PassesWhenTheConditionHolds) { EXPECT_NO_THROW(PENSTOCK_CHECK(1 + 1 == 2)); }

TEST(Check, ThrowsInternalErrorWithPlaceConditionAndValues) {
  const int stage = 7;
  const auto message =
      tests::message_of<InternalError>([&] { PENSTOCK_CHECK(stage < 4, stage, "of", 4); });
  EXPECT_THAT(message,
              AllOf(HasSubstr("check_test.cpp:"), HasSubstr("stage < 4"), HasSubstr("7 of 4")));
}

TEST(Check, EvaluatesTheConditionOnce) {
  int calls = 0;
  PENSTOCK_CHECK(++calls == 1);
  EXPECT_EQ(calls, 1);
}

TEST(ParseError, StartsWithPlaceAndLine) {
  EXPECT_STREQ(ParseError("s.txt", 3, "expected F").what(), "s.txt:3: expected F");
  EXPECT_STREQ(ParseError("s.txt", 0, "expected F").what(), "s.txt: expected F");
}

TEST(Error, IsTheBaseOfEveryErrorType) {
  EXPECT_THROW(throw ConfigError("x"), Error);
  EXPECT_THROW(throw ParseError("p", 1, "x"), Error);
  EXPECT_THROW(throw InternalError("x"), Error);
}

}  // namespace
}  // namespace penstock
