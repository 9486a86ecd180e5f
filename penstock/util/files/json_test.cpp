#include "penstock/util/files/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "penstock/util/error.h"
#include "tests/support/mutate.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using tests::message_of;

std::string refusal(std::string_view text) {
  return message_of<ParseError>([&] { parse_json(text, "doc.json"); });
}

TEST(ParseJson, KeepsTheOrderOfKeys) {
  const Json document =
      parse_json(R"({"z": 1, "a": [true, null, "x", -2, 1.5], "m": {}})", "doc.json");
  EXPECT_EQ(document.dump(), R"({"z":1,"a":[true,null,"x",-2,1.5],"m":{}})");
}

TEST(ParseJson, NamesPlaceAndLineOfMalformedText) {
  EXPECT_THAT(refusal("{\n\"a\": 1,\n\"b\" 2}"), StartsWith("doc.json:3: not valid JSON: "));
  EXPECT_THAT(refusal("{\"a\": [1, 2"), StartsWith("doc.json:1: "));
  EXPECT_THAT(refusal("{} x"), StartsWith("doc.json:1: "));
}

TEST(ParseJson, RefusesTextThatIsNotADocument) {
  for (const std::string& text :
       {std::string(), std::string("   \n"), std::string("\0\0\0", 3),
        std::string("\x89PNG\r\n\x1a\n"), std::string("{\"a\": NaN}"), std::string("[1e999]"),
        std::string("[-1e999]"), std::string("[\"\xff\"]"), std::string("[1,]"),
        std::string("{\"a\":1} {}")}) {
    EXPECT_THROW(parse_json(text, "doc.json"), ParseError) << text;
  }
}

TEST(ParseJson, RefusesNestingBeyondTheLimit) {
  EXPECT_THAT(refusal(std::string(100'000, '[')), HasSubstr("nested deeper than 200"));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_THAT(refusal(objects), HasSubstr("nested deeper than 200"));
  EXPECT_NO_THROW(parse_json(std::string(200, '[') + std::string(200, ']'), "doc.json"));
  EXPECT_THROW(parse_json(std::string(201, '[') + std::string(201, ']'), "doc.json"), ParseError);
}

TEST(ParseJson, RefusesAKeyGivenTwice) {
  EXPECT_THAT(refusal(R"({"a": 1, "b": {"a": 2}, "a": 3})"), HasSubstr("\"a\" is given twice"));
  EXPECT_NO_THROW(parse_json(R"([{"a": 1}, {"a": 1, "b": {"a": 2}}])", "doc.json"));
}

TEST(ParseJson, TakesTimeLinearInTheNumberOfKeys) {
  std::string text = "{";
  for (int i = 0; i < 100'000; ++i) text += "\"key" + std::to_string(i) + "\":0,";
  text += "\"last\":0}";
  EXPECT_EQ(parse_json(text, "doc.json").size(), 100'001U);  // quadratic, this would take a minute
}

TEST(ParseJson, MessagesStayShort) {
  EXPECT_LT(refusal("[" + std::string(1'000'000, 'x')).size(), 400U);
}

TEST(ToText, EndsWithANewlineAndReplacesBytesThatAreNotUtf8) {
  EXPECT_EQ(to_text(Json{{"a", 1}}), "{\n \"a\": 1\n}\n");
  EXPECT_THAT(to_text(Json{{"a", "x\xffy"}}), HasSubstr("x\xEF\xBF\xBDy"));
}

/// A document with one value of each kind.
class Reader : public ::testing::Test {
 protected:
  const Json document_ = parse_json(
      R"({"count": 3, "big": 18446744073709551615, "ratio": 0.5, "ok": true, "name": "x",
          "none": null,
          "stages": [{"replicas": 1}, {"replicas": "two"}]})",
      "p.json");
  const JsonReader root_{document_, "p.json"};
};

TEST_F(Reader, ReadsEveryType) {
  EXPECT_EQ(root_.at("count").integer(), 3);
  EXPECT_EQ(root_.at("count").number(), 3.0);
  EXPECT_EQ(root_.at("ratio").number(), 0.5);
  EXPECT_TRUE(root_.at("ok").boolean());
  EXPECT_EQ(root_.at("name").text(), "x");
  EXPECT_EQ(root_.at("stages").elements()[0].at("replicas").integer(1, 1), 1);
}

TEST_F(Reader, FindsNothingWhereAKeyIsMissingOrNull) {
  EXPECT_FALSE(root_.find("missing"));
  EXPECT_FALSE(root_.find("none"));
  EXPECT_TRUE(root_.has("none"));
  EXPECT_FALSE(root_.has("missing"));
  EXPECT_EQ(root_.integer_or("missing", 7), 7);
  EXPECT_EQ(root_.integer_or("count", 7), 3);
  EXPECT_EQ(root_.text_or("none", "y"), "y");
}

TEST_F(Reader, ErrorsNamePlacePathAndTheExpectedAndFoundValue) {
  const auto replicas = [&] { root_.at("stages").elements()[1].at("replicas").integer(1); };
  EXPECT_EQ(message_of<ParseError>(replicas),
            "p.json: stages[1].replicas: expected an integer of at least 1, found \"two\"");
  EXPECT_EQ(message_of<ParseError>([&] { root_.at("count").integer(5, 9); }),
            "p.json: count: expected an integer from 5 to 9, found 3");
  EXPECT_EQ(message_of<ParseError>([&] { root_.at("gone"); }),
            "p.json: the key \"gone\" is missing");
  EXPECT_EQ(message_of<ParseError>([&] { root_.at("count").at("x"); }),
            "p.json: count: expected an object, found 3");
}

TEST_F(Reader, RefusesValuesOfAnotherTypeOrRange) {
  EXPECT_THROW(root_.at("big").integer(), ParseError);
  EXPECT_THROW(root_.at("ratio").integer(), ParseError);
  EXPECT_THROW(root_.at("ok").number(), ParseError);
  EXPECT_THROW(root_.at("count").boolean(), ParseError);
  EXPECT_THROW(root_.at("count").text(), ParseError);
  EXPECT_THROW(root_.at("count").elements(), ParseError);
  EXPECT_THROW(root_.at("stages").elements(1), ParseError);
  EXPECT_THROW(root_.integer_or("name", 1), ParseError);
}

TEST(CheckFormat, AcceptsOlderAndRefusesNewerOrForeignDocuments) {
  const auto check = [](const char* text) {
    const Json document = parse_json(text, "p.json");
    check_format(JsonReader(document, "p.json"), "plan", 2);
  };
  EXPECT_NO_THROW(check(R"({"format": "penstock-plan", "version": 2})"));
  EXPECT_NO_THROW(check(R"({"format": "penstock-plan", "version": 1})"));
  EXPECT_THAT(
      message_of<ParseError>([&] { check(R"({"format": "penstock-plan", "version": 3})"); }),
      HasSubstr("version 3 is newer than 2"));
  EXPECT_THAT(
      message_of<ParseError>([&] { check(R"({"format": "penstock-profile", "version": 1})"); }),
      AllOf(HasSubstr("\"penstock-plan\""), HasSubstr("\"penstock-profile\"")));
  for (const char* text : {"{}", "[]", "3", R"({"format": 1})", R"({"format": "penstock-plan"})",
                           R"({"format": "penstock-plan", "version": 0})",
                           R"({"format": "penstock-plan", "version": "1"})"}) {
    EXPECT_THROW(check(text), ParseError) << text;
  }
}

RC_GTEST_PROP(Json, IntegersAndDoublesParseBackToTheSameValue, (int64_t integer, double real)) {
  RC_PRE(std::isfinite(real));
  const Json document = parse_json(to_text(Json{{"i", integer}, {"d", real}}), "doc.json");
  RC_ASSERT(document["i"].get<int64_t>() == integer);
  RC_ASSERT(document["d"].get<double>() == real);
}

RC_GTEST_PROP(Json, DamagedTextIsReadOrRefused, (uint64_t seed)) {
  for (const std::string& text : tests::mutants(
           R"({"a": [1, 2.5e3, "x\u00e9\n"], "b": {"c": null, "d": -0.0}, "e": true})", seed, 20)) {
    try {
      parse_json(text, "doc.json");
    } catch (const ParseError&) {
    }
  }
}

}  // namespace
}  // namespace penstock
