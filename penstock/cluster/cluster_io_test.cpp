#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>

#include "penstock/cluster/cluster.h"
#include "penstock/util/error.h"
#include "tests/support/mutate.h"

namespace penstock::cluster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::string_view kTwoServers = R"([[level]]
name = "server"
count = 4
bandwidth = "12GB/s"
latency = "5us"

[[level]]
name = "rack"
count = 2
bandwidth = "10Gbps"
latency = "20us"
by_reference = false

[device]
name = "v100"
memory = "16GB"
speed = 1.5
)";

std::string refusal(const std::string& text) {
  return tests::message_of<ParseError>([&] { parse_cluster(text, "c.toml"); });
}

TEST(ParseCluster, ReadsLevelsAndDevice) {
  Cluster expected;
  expected.levels = {{"server", 4, 12'000'000'000, 5'000, false}, {"rack", 2, 1'250'000'000, 20'000, false}};
  expected.device = {"v100", 16'000'000'000, 1.5};
  EXPECT_EQ(parse_cluster(kTwoServers, "c.toml"), expected);
}

TEST(ParseCluster, FillsInWhatMayBeLeftOut) {
  Cluster expected;
  expected.levels = {{"level0", 2, 1'000, 0, false}};
  EXPECT_EQ(parse_cluster("[[level]]\ncount = 2\nbandwidth = 1000\n", "c.toml"), expected);
}

TEST(ParseCluster, TakesPlainIntegersInBaseUnits) {
  const Cluster cluster = parse_cluster("device = {memory = 5, speed = 2}\n[[level]]\ncount = 1\nbandwidth = 7\nlatency = 9\n", "c.toml");
  EXPECT_EQ(cluster.levels[0].bandwidth_bytes_per_s, 7);
  EXPECT_EQ(cluster.levels[0].latency_ns, 9);
  EXPECT_EQ(cluster.device.memory_bytes, 5);
  EXPECT_EQ(cluster.device.speed, 2.0);
}

TEST(ParseCluster, NamesPlaceLineKeyAndFinding) {
  EXPECT_THAT(refusal("[[level]]\ncount = 0\nbandwidth = 1\n"), AllOf(StartsWith("c.toml:2: level[0].count:"), HasSubstr("found 0")));
  EXPECT_THAT(refusal("[[level]]\ncount = 1\nbandwidth = \"10GB\"\n"),
              AllOf(StartsWith("c.toml:3: level[0].bandwidth:"), HasSubstr("'10GB'")));
  EXPECT_THAT(refusal("[[level]]\ncount = \"4\"\nbandwidth = 1\n"), HasSubstr("expected an integer, found a string"));
  EXPECT_THAT(refusal("[[level]]\ncount = 1\n"), AllOf(StartsWith("c.toml:1: "), HasSubstr("'bandwidth' is missing")));
  EXPECT_THAT(refusal("[[level]]\ncount = = 1\n"), StartsWith("c.toml:2: not valid TOML"));
  EXPECT_THAT(refusal("[[level]]\ncount = 1\nbandwidth = 1\n[device]\nspeed = \"fast\"\n"), StartsWith("c.toml:5: device.speed"));
}

TEST(ParseCluster, RefusesUnknownKeysAndNamesTheKnownOnes) {
  EXPECT_THAT(refusal("[[level]]\ncount = 1\nbandwith = 1\n"),
              AllOf(StartsWith("c.toml:3: "), HasSubstr("'bandwith'"), HasSubstr("bandwidth")));
  EXPECT_THAT(refusal("levels = 1\n"), HasSubstr("'levels'"));
  EXPECT_THAT(refusal(std::string(kTwoServers) + "cores = 4\n"), HasSubstr("'cores'"));
}

TEST(ParseCluster, RefusesUnusableValues) {
  const std::string level = "[[level]]\ncount = 1\nbandwidth = 1\n";
  for (const std::string& text :
       {std::string(),
        std::string("level = 3\n"),
        std::string("level = []\n"),
        std::string("level = [1]\n"),
        std::string("[level]\ncount = 1\nbandwidth = 1\n"),
        std::string("[[level]]\ncount = 1\nbandwidth = -1\n"),
        std::string("[[level]]\ncount = 1\nbandwidth = 1.5\n"),
        std::string("[[level]]\ncount = 1\nbandwidth = nan\n"),
        std::string("[[level]]\ncount = 3000000000\nbandwidth = 1\n"),
        std::string("[[level]]\ncount = 99999999999999999999\nbandwidth = 1\n"),
        std::string("[[level]]\ncount = 1\ncount = 1\nbandwidth = 1\n"),
        std::string("[[level]]\ncount = 1000000000\nbandwidth = 1\n[[level]]\ncount = 1000000000\nbandwidth = 1\n"),
        level + "latency = \"-5us\"\n",
        level + "by_reference = 1\n",
        level + "[device]\nspeed = nan\n",
        level + "[device]\nspeed = inf\n",
        level + "[device]\nspeed = 0\n",
        level + "[device]\nspeed = -1.0\n",
        level + "[device]\nspeed = 1e999\n",
        level + "[device]\nmemory = \"1e30GB\"\n",
        level + "[device]\nmemory = 9223372036854775807\n",
        level + "device = 3\n",
        level + "[[device]]\nspeed = 1.0\n",
        std::string("\0\0\0\0", 4),
        std::string("\x7f"
                    "ELF\x02\x01\x01"),
        std::string("\xff\xfe\x00", 3)}) {
    EXPECT_THROW(parse_cluster(text, "c.toml"), ParseError) << text;
  }
}

TEST(ParseCluster, RefusesDeepNestingAndLargeFiles) {
  std::string dotted = "a";
  for (int i = 0; i < 30'000; ++i) dotted += ".a";
  EXPECT_THAT(refusal(dotted + " = 1\n"), HasSubstr("dots and brackets"));
  EXPECT_THAT(refusal("[" + dotted + "]\n"), HasSubstr("dots and brackets"));
  EXPECT_THROW(parse_cluster("a = " + std::string(60'000, '['), "c.toml"), ParseError);
  EXPECT_THROW(parse_cluster("a = " + std::string(1'900, '['), "c.toml"), ParseError);
  EXPECT_THAT(refusal(std::string(100'000, '#')), HasSubstr("at most 65536 bytes"));
  std::string below_the_bound = "a";
  for (int i = 0; i < 1'990; ++i) below_the_bound += ".a";
  EXPECT_THROW(parse_cluster(below_the_bound + " = 1\n", "c.toml"), ParseError);
}

TEST(LoadCluster, RefusesAMissingFileAndADirectory) {
  EXPECT_THROW(load_cluster("/nonexistent/cluster.toml"), ConfigError);
  EXPECT_THROW(load_cluster(std::filesystem::temp_directory_path()), ConfigError);
}

TEST(ToToml, WritesUnitsThatPeopleRead) {
  const Cluster cluster = parse_cluster(kTwoServers, "c.toml");
  EXPECT_THAT(to_toml(cluster),
              AllOf(HasSubstr("bandwidth = \"12GB/s\""), HasSubstr("latency = \"20us\""), HasSubstr("memory = \"16GB\"")));
}

rc::Gen<Cluster> any_cluster() {
  const auto quantity = [](int64_t least) { return rc::gen::inRange<int64_t>(least, int64_t{1} << 62); };
  const auto name = rc::gen::container<std::string>(rc::gen::inRange<char>(1, 127));
  const auto level = rc::gen::build<Level>(rc::gen::set(&Level::name, name), rc::gen::set(&Level::count, rc::gen::inRange(1, 10)),
                                           rc::gen::set(&Level::bandwidth_bytes_per_s, quantity(1)),
                                           rc::gen::set(&Level::latency_ns, quantity(0)), rc::gen::set(&Level::by_reference));
  const auto speed = rc::gen::map(rc::gen::inRange<int64_t>(1, 1'000'000'000), [](int64_t n) { return static_cast<double>(n) / 3e4; });
  const auto device = rc::gen::build<Device>(rc::gen::set(&Device::name, name), rc::gen::set(&Device::memory_bytes, quantity(0)),
                                             rc::gen::set(&Device::speed, speed));
  const auto levels =
      rc::gen::mapcat(rc::gen::inRange<size_t>(1, 5), [=](size_t count) { return rc::gen::container<std::vector<Level>>(count, level); });
  return rc::gen::build<Cluster>(rc::gen::set(&Cluster::levels, levels), rc::gen::set(&Cluster::device, device));
}

RC_GTEST_PROP(ToToml, ParsesBackToTheSameCluster, ()) {
  const Cluster cluster = *any_cluster();
  const std::string text = to_toml(cluster);
  RC_LOG() << text;
  RC_ASSERT(parse_cluster(text, "c.toml") == cluster);
}

RC_GTEST_PROP(ParseCluster, DamagedTextIsReadOrRefused, (uint64_t seed)) {
  for (const std::string& text : tests::mutants(std::string(kTwoServers), seed, 20)) {
    try {
      validate(parse_cluster(text, "c.toml"));
    } catch (const ParseError&) {
    }
  }
}

}  // namespace
}  // namespace penstock::cluster
