#include "penstock/util/files/safetensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "penstock/util/error.h"
#include "tests/support/mutate.h"

namespace penstock {
namespace {

using testing::HasSubstr;
using tests::message_of;

std::string with_length(uint64_t length, const std::string& rest) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(length >> (8 * i) & 0xFF);
  return file + rest;
}

std::string file_of(const std::string& header, size_t data_bytes) {
  return with_length(header.size(), header + std::string(data_bytes, 'x'));
}

std::string header_refusal(const std::string& file) {
  return message_of<ParseError>([&] { parse_safetensors(file, "some.file"); });
}

TEST(Safetensors, WritesThePublishedFormat) {
  std::vector<TensorInfo> tensors{{.name = "a", .dtype = "F32", .shape = {2, 3}}};
  const std::string json = R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})";
  EXPECT_EQ(make_safetensors_header(tensors),
            with_length(64, json + std::string(64 - json.size(), ' ')));
}

TEST(Safetensors, ReadsAHeaderWithMetadataAndAnyOrder) {
  const std::string header =
      R"({"b":{"dtype":"F16","shape":[2],"data_offsets":[8,12]},"__metadata__":{"by":"hand"},)"
      R"("a":{"data_offsets":[0,8],"shape":[],"dtype":"I64"}})";
  const std::vector<TensorInfo> tensors = parse_safetensors(file_of(header, 12), "x");
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(tensors[0], (TensorInfo{"a", "I64", {}, 0, 8}));
  EXPECT_EQ(tensors[1], (TensorInfo{"b", "F16", {2}, 8, 12}));
}

TEST(Safetensors, EmptyTensorsTakeNoBytes) {
  std::vector<TensorInfo> tensors{
      {.name = "a", .shape = {2}}, {.name = "none", .shape = {0, 5}}, {.name = "b", .shape = {1}}};
  const std::string file = make_safetensors_header(tensors) + std::string(12, 'x');
  EXPECT_EQ(parse_safetensors(file, "x").size(), 3U);
}

TEST(Safetensors, RefusesEnormousHeaderLengths) {
  EXPECT_THAT(header_refusal(with_length(UINT64_MAX, "{}")),
              HasSubstr("length of 18446744073709551615"));
  EXPECT_THAT(header_refusal(with_length(uint64_t{1} << 63, "{}")),
              HasSubstr("9223372036854775808"));
  EXPECT_THAT(header_refusal(with_length(3, "{}")), HasSubstr("at most 2 bytes"));
  EXPECT_THAT(header_refusal("abc"), HasSubstr("only 3 bytes"));
  header_refusal("");
  header_refusal(with_length(0, ""));
}

TEST(Safetensors, RefusesOffsetsThatOverlapLeaveGapsOrLieOutside) {
  const auto pair = [](int a, int b, int c, int d) {
    return fmt::format(R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":[{},{}]}},)"
                       R"("b":{{"dtype":"U8","shape":[4],"data_offsets":[{},{}]}}}})",
                       a, b, c, d);
  };
  EXPECT_NO_THROW(parse_safetensors(file_of(pair(0, 4, 4, 8), 8), "x"));
  EXPECT_THAT(header_refusal(file_of(pair(0, 4, 3, 7), 8)),
              HasSubstr("'b' begins at byte 3; expected 4"));
  EXPECT_THAT(header_refusal(file_of(pair(0, 4, 0, 4), 8)), HasSubstr("begins at byte 0"));
  EXPECT_THAT(header_refusal(file_of(pair(0, 4, 5, 9), 9)), HasSubstr("begins at byte 5"));
  EXPECT_THAT(header_refusal(file_of(pair(0, 4, 4, 8), 9)),
              HasSubstr("end at byte 8, the data ends at byte 9"));
  EXPECT_THAT(header_refusal(file_of(pair(0, 4, 4, 8), 7)),
              HasSubstr("end at byte 8, the data ends at byte 7"));
  EXPECT_THAT(header_refusal(file_of(pair(4, 0, 4, 8), 8)), HasSubstr("do not fit"));
  EXPECT_THAT(header_refusal(file_of(pair(0, 5, 5, 9), 9)), HasSubstr("do not fit"));
}

TEST(Safetensors, RefusesShapesThatOverflow) {
  const std::string header =
      R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})";
  EXPECT_THAT(header_refusal(file_of(header, 0)), HasSubstr("tensor 'a'"));
}

TEST(Safetensors, RefusesHeadersOfAnotherForm) {
  for (const char* header :
       {"[]", "3", "{", "{\"a\":1}", R"({"a":{}})", R"({"a":{"dtype":"F32","shape":[1]}})",
        R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})",
        R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})",
        R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})",
        R"({"a":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})",
        R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})",
        R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}})",
        R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})",
        R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
        R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})"}) {
    header_refusal(file_of(header, 4));
  }
  EXPECT_THAT(header_refusal(file_of(std::string(100'000, '['), 0)), HasSubstr("nested"));
}

TEST(Safetensors, WritingRefusesAmbiguousNames) {
  std::vector<TensorInfo> twice{{.name = "a", .shape = {1}}, {.name = "a", .shape = {2}}};
  EXPECT_THAT(message_of<ConfigError>([&] { make_safetensors_header(twice); }), HasSubstr("'a'"));
  std::vector<TensorInfo> bad{{.name = "\xff", .shape = {1}}};
  EXPECT_THAT(message_of<ConfigError>([&] { make_safetensors_header(bad); }), HasSubstr("UTF-8"));
}

TEST(Safetensors, EveryTruncationOfAHeaderIsRefused) {
  std::vector<TensorInfo> tensors{{.name = "a", .shape = {3}}, {.name = "b", .shape = {2, 2}}};
  const std::string file = make_safetensors_header(tensors) + std::string(28, 'x');
  ASSERT_NO_THROW(parse_safetensors(file, "x"));
  for (size_t length = 0; length < file.size(); ++length) header_refusal(file.substr(0, length));
}

RC_GTEST_PROP(Safetensors, HeadersReadBack, ()) {
  const auto count = *rc::gen::inRange<size_t>(0, 8);
  std::vector<TensorInfo> tensors;
  for (size_t i = 0; i < count; ++i) {
    tensors.push_back(
        {.name = fmt::format("t{}", i),
         .dtype = *rc::gen::element<std::string>("F32", "F64", "U8", "BF16"),
         .shape = *rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(1, 5))});
    if (tensors.back().shape.size() > 6) tensors.back().shape.resize(6);
  }
  std::string file = make_safetensors_header(tensors);
  RC_ASSERT(file.size() % 8 == 0);
  file.resize(file.size() + static_cast<size_t>(tensors.empty() ? 0 : tensors.back().end));
  RC_ASSERT(parse_safetensors(file, "x") == tensors);
}

RC_GTEST_PROP(Safetensors, GarbageIsAParseError, (std::string header)) {
  try {
    parse_safetensors(with_length(header.size(), header), "x");
  } catch (const ParseError&) {
  }
}

}  // namespace
}  // namespace penstock
