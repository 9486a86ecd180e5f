#include "penstock/util/text/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "penstock/util/error.h"
#include "tests/support/mutate.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using tests::message_of;

constexpr int64_t kLargest = int64_t{1} << 62;

TEST(ParseBytes, UnderstandsDecimalAndBinaryUnits) {
  EXPECT_EQ(parse_bytes("123"), 123);
  EXPECT_EQ(parse_bytes("0"), 0);
  EXPECT_EQ(parse_bytes("7B"), 7);
  EXPECT_EQ(parse_bytes("16GB"), 16'000'000'000);
  EXPECT_EQ(parse_bytes(" 1.5 GB "), 1'500'000'000);
  EXPECT_EQ(parse_bytes("512MiB"), 536'870'912);
  EXPECT_EQ(parse_bytes("0.5KiB"), 512);
  EXPECT_EQ(parse_bytes("2PB"), 2'000'000'000'000'000);
}

TEST(ParseBytes, IsExactUpToItsLimit) {
  EXPECT_EQ(parse_bytes("4611686018427387904"), kLargest);
  EXPECT_EQ(parse_bytes("4611686018427387903"), kLargest - 1);
  EXPECT_EQ(parse_bytes("4096PiB"), kLargest);
  EXPECT_EQ(parse_bytes("1.000000000000000001GB"), 1'000'000'000);
}

TEST(ParseBytes, RefusesEverythingElse) {
  for (const char* text : {"",
                           " ",
                           "GB",
                           "-1",
                           "+1",
                           "1e9",
                           "nan",
                           "inf",
                           "16G",
                           "16gb",
                           "1.",
                           ".5GB",
                           "1.2.3",
                           "0x10",
                           "1 000",
                           "16GB/s",
                           "4611686018427387905",
                           "5000PB",
                           "99999999999999999999999999",
                           "1GB garbage",
                           "\xff\xfe"}) {
    EXPECT_THROW(parse_bytes(text), ConfigError) << text;
  }
  EXPECT_THROW(parse_bytes(std::string(1'000'000, '9')), ConfigError);
  EXPECT_THROW(parse_bytes(std::string_view("1\0GB", 4)), ConfigError);
}

TEST(ParseBytes, NamesTheTextAndWhatWasExpected) {
  EXPECT_THAT(message_of<ConfigError>([] { parse_bytes("16G"); }),
              AllOf(HasSubstr("'16G'"), HasSubstr("512MiB"), HasSubstr("unit 'G'")));
  EXPECT_LT(message_of<ConfigError>([] { parse_bytes(std::string(100'000, 'x')); }).size(), 300U);
}

TEST(ParseBandwidth, UnderstandsBytesAndBits) {
  EXPECT_EQ(parse_bandwidth("12GB/s"), 12'000'000'000);
  EXPECT_EQ(parse_bandwidth("10Gbps"), 1'250'000'000);
  EXPECT_EQ(parse_bandwidth("800Mbit/s"), 100'000'000);
  EXPECT_EQ(parse_bandwidth("1000"), 1000);
  EXPECT_EQ(parse_bandwidth("1MiB/s"), 1'048'576);
  EXPECT_EQ(parse_bandwidth("2.5Gbps"), 312'500'000);
}

TEST(ParseBandwidth, RefusesZeroAndSizes) {
  for (const char* text : {"0", "0GB/s", "1bps", "12GB", "-1GB/s", "10Gb", ""})
    EXPECT_THROW(parse_bandwidth(text), ConfigError) << text;
}

TEST(ParseFlops, UnderstandsUnits) {
  EXPECT_EQ(parse_flops("15.7TFLOP/s"), 15'700'000'000'000);
  EXPECT_EQ(parse_flops("900 GFLOP/s"), 900'000'000'000);
  EXPECT_EQ(parse_flops("12"), 12);
  for (const char* text : {"0", "15.7T", "1TB/s", "-1GFLOP/s", "5000PFLOP/s5", "nan", ""})
    EXPECT_THROW(parse_flops(text), ConfigError) << text;
}

TEST(ParseDuration, UnderstandsUnits) {
  EXPECT_EQ(parse_duration("0"), 0);
  EXPECT_EQ(parse_duration("40ns"), 40);
  EXPECT_EQ(parse_duration("5us"), 5'000);
  EXPECT_EQ(parse_duration("1.5ms"), 1'500'000);
  EXPECT_EQ(parse_duration("2s"), 2'000'000'000);
  EXPECT_EQ(parse_duration("2min"), 120'000'000'000);
  EXPECT_THROW(parse_duration("2 weeks"), ConfigError);
  EXPECT_THROW(parse_duration("-5us"), ConfigError);
}

TEST(FormatBytes, ShowsThreeSignificantDigits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(640), "640 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1'000), "1.00 kB");
  EXPECT_EQ(format_bytes(1'250'000'000), "1.25 GB");
  EXPECT_EQ(format_bytes(12'340'000), "12.3 MB");
  EXPECT_EQ(format_bytes(999'499), "999 kB");
  EXPECT_EQ(format_bytes(999'500), "1.00 MB");
  EXPECT_EQ(format_bytes(-2'000), "-2.00 kB");
  EXPECT_EQ(format_bytes(INT64_MAX), "9.22 EB");
  EXPECT_EQ(format_bytes(INT64_MIN), "-9.22 EB");
  EXPECT_EQ(format_bandwidth(1'250'000'000), "1.25 GB/s");
  EXPECT_EQ(format_flops(118'000'000'000), "118 GFLOP/s");
}

TEST(FormatDuration, ChangesToMinutesAndHours) {
  EXPECT_EQ(format_duration(0), "0 ns");
  EXPECT_EQ(format_duration(4'500), "4.50 us");
  EXPECT_EQ(format_duration(12'300'000), "12.3 ms");
  EXPECT_EQ(format_duration(59'900'000'000), "59.9 s");
  EXPECT_EQ(format_duration(59'990'000'000), "1 min 00 s");
  EXPECT_EQ(format_duration(65'000'000'000), "1 min 05 s");
  EXPECT_EQ(format_duration(3'600'000'000'000), "1 h 00 min");
  EXPECT_NO_THROW(format_duration(INT64_MIN));
}

RC_GTEST_PROP(ParseBytes, ReadsEveryIntegerInRangeExactly, ()) {
  const auto value = *rc::gen::inRange<int64_t>(0, kLargest);
  RC_ASSERT(parse_bytes(std::to_string(value)) == value);
}

RC_GTEST_PROP(Units, AnyTextIsReadOrRefused, (const std::string& text, uint64_t seed)) {
  auto texts = tests::mutants("12.5GB/s", seed, 20);
  texts.push_back(text);
  for (const std::string& candidate : texts) {
    for (const auto parse : {parse_bytes, parse_bandwidth, parse_flops, parse_duration}) {
      try {
        const int64_t value = parse(candidate);
        RC_ASSERT(value >= 0 && value <= kLargest);
      } catch (const ConfigError&) {
      }
    }
  }
}

}  // namespace
}  // namespace penstock
