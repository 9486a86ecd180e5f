#include "penstock/imported/symbolic_size.h"

#include <gtest/gtest.h>

#include "penstock/util/error.h"

namespace penstock::imported {
namespace {

SizeExpression expression(const std::string& text) { return SizeExpression({1, text}); }

TEST(SizeExpression, IsANumber) {
  const SizeExpression size({7, ""});
  EXPECT_TRUE(size.is_number());
  EXPECT_EQ(size.evaluate({}), 7);
  EXPECT_EQ(size.multiple_of("s0"), 0);
}

TEST(SizeExpression, HasSymbolsSumsAndProducts) {
  const SizeExpression size = expression(
      "Add(Integer(-1), Mul(Integer(2), Symbol('s77', positive=True, integer=True), "
      "Symbol('s1', integer=True)))");
  EXPECT_EQ(size.symbols(), (std::set<std::string>{"s1", "s77"}));
  EXPECT_EQ(size.evaluate({{"s77", 3}, {"s1", 5}}), 29);
}

TEST(SizeExpression, DivisionsRoundDown) {
  const SizeExpression divided =
      expression("torch.utils._sympy.functions.FloorDiv(Symbol('s0', integer=True), Integer(4))");
  EXPECT_EQ(divided.evaluate({{"s0", 11}}), 2);
  EXPECT_EQ(divided.evaluate({{"s0", -1}}), -1);
  EXPECT_EQ(expression("Mod(Symbol('s0'), Integer(4))").evaluate({{"s0", -1}}), 3);
  EXPECT_EQ(expression("Pow(Symbol('s0'), Integer(3))").evaluate({{"s0", -2}}), -8);
  EXPECT_EQ(expression("Max(Integer(1), Min(Symbol('s0'), Integer(4)))").evaluate({{"s0", 9}}), 4);
}

TEST(SizeExpression, MultiplesOfOneSymbolAreKnown) {
  EXPECT_EQ(expression("Symbol('s0', integer=True)").multiple_of("s0"), 1);
  EXPECT_EQ(expression("Mul(Integer(6), Symbol('s0'))").multiple_of("s0"), 6);
  EXPECT_EQ(expression("Symbol('s0')").multiple_of("s1"), 0);
  EXPECT_EQ(expression("Add(Integer(1), Symbol('s0'))").multiple_of("s0"), 0);
  EXPECT_EQ(expression("Pow(Symbol('s0'), Integer(2))").multiple_of("s0"), 0);
  EXPECT_EQ(expression("FloorDiv(Symbol('s0'), Integer(2))").multiple_of("s0"), 0);
}

TEST(SizeExpression, WhatCannotBeEvaluatedIsAnError) {
  EXPECT_THROW(expression("Symbol('s0')").evaluate({}), RuntimeError);
  EXPECT_THROW(expression("FloorDiv(Integer(1), Symbol('s0'))").evaluate({{"s0", 0}}),
               RuntimeError);
  EXPECT_THROW(expression("Mul(Symbol('s0'), Symbol('s0'))").evaluate({{"s0", int64_t{1} << 40}}),
               RuntimeError);
  for (const char* name : {"FloorDiv", "Mod"}) {
    const SizeExpression least =
        expression(std::string(name) + "(Integer(-9223372036854775808), Symbol('s0'))");
    EXPECT_THROW(least.evaluate({{"s0", -1}}), RuntimeError);
  }
  EXPECT_EQ(expression("Mod(Integer(7), Symbol('s0'))").evaluate({{"s0", -1}}), 0);
  EXPECT_THROW(expression("Pow(Integer(2), Symbol('s0'))").evaluate({{"s0", 1'000'000'000}}),
               RuntimeError);
}

TEST(SizeExpression, WhatCannotBeReadIsNamed) {
  for (const char* text :
       {"(", "Integer", "Integer()", "Integer(1", "Integer(1))", "Integer(99999999999999999999)",
        "Symbol(s0)", "Symbol('s0", "Add()", "FloorDiv(Integer(1))", "Float('1.5')",
        "Sin(Integer(1))", "Add(Integer(1),)"}) {
    EXPECT_THROW(expression(text), ConfigError) << text;
  }
  std::string deep;
  for (int i = 0; i < 10'000; ++i) deep += "Add(";
  EXPECT_THROW(expression(deep), ConfigError);
}

}  // namespace
}  // namespace penstock::imported
