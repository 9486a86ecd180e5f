#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>
#include <tuple>
#include <utility>

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
  expected.levels = {{"server", 4, 12'000'000'000, 5'000, false},
                     {"rack", 2, 1'250'000'000, 20'000, false}};
  expected.device = {"v100", 16'000'000'000, 1.5};
  EXPECT_EQ(parse_cluster(kTwoServers, "c.toml"), expected);
}

TEST(ParseCluster, ReadsTheWayToTheHost) {
  const std::string level = "[[level]]\ncount = 2\nbandwidth = 1000\n";
  const Cluster cluster = parse_cluster(
      level +
          "[device]\nhost_bandwidth = \"12GB/s\"\n[[devices]]\nworkers = 1\nspeed = 2\n"
          "host_bandwidth = \"6GB/s\"\n",
      "c.toml");
  EXPECT_EQ(cluster.device.host_bytes_per_s, 12'000'000'000);
  EXPECT_EQ(cluster.device_of(1).host_bytes_per_s, 6'000'000'000);
  EXPECT_EQ(parse_cluster(to_toml(cluster), "again"), cluster);
  EXPECT_FALSE(cluster.uniform());
  EXPECT_EQ(parse_cluster(level, "c.toml").device.host_bytes_per_s, 0);
  EXPECT_THAT(refusal(level + "[device]\nhost_bandwidth = \"-1GB/s\"\n"),
              AllOf(StartsWith("c.toml:5: "), HasSubstr("host_bandwidth")));
}

TEST(ParseCluster, ReadsTheProcessorTimeOfSumsAndMessages) {
  const auto with = [](const std::string& line) {
    return "[[level]]\ncount = 2\nbandwidth = 1000\n" + line + "\n";
  };
  const Cluster cluster = parse_cluster(with("processor_time_per_gb = \"850ms\""), "c.toml");
  EXPECT_EQ(cluster.levels[0].processor_ns_per_gb, 850'000'000);
  EXPECT_THAT(to_toml(cluster), HasSubstr("processor_time_per_gb = \"850ms\"\n"));
  EXPECT_EQ(parse_cluster(with(""), "c.toml").levels[0].processor_ns_per_gb, 0);
  const Cluster of_messages =
      parse_cluster(with("processor_time_per_message = \"45us\""), "c.toml");
  EXPECT_EQ(of_messages.levels[0].processor_ns_per_message, 45'000);
  for (const char* key : {"processor_time_per_gb", "processor_time_per_message"})
    EXPECT_THAT(refusal(with(key + std::string(" = -1"))),
                AllOf(StartsWith("c.toml:4: "), HasSubstr(key)));
}

TEST(ParseCluster, FillsInWhatMayBeLeftOut) {
  Cluster expected;
  expected.levels = {{"level0", 2, 1'000, 0, false}};
  EXPECT_EQ(parse_cluster("[[level]]\ncount = 2\nbandwidth = 1000\n", "c.toml"), expected);
}

TEST(ParseCluster, TakesPlainIntegersInBaseUnits) {
  const Cluster cluster = parse_cluster(
      "device = {memory = 5, speed = 2}\n[[level]]\ncount = 1\nbandwidth = 7\nlatency = 9\n",
      "c.toml");
  EXPECT_EQ(cluster.levels[0].bandwidth_bytes_per_s, 7);
  EXPECT_EQ(cluster.levels[0].latency_ns, 9);
  EXPECT_EQ(cluster.device.memory_bytes, 5);
  EXPECT_EQ(cluster.device.speed, 2.0);
}

constexpr std::string_view kMixedCluster = R"([[level]]
count = 8
bandwidth = "10Gbps"

[device]
name = "v100"
memory = "16GB"

[[devices]]
workers = "6-7"
name = "a100"
memory = "40GB"
speed = 2.5

[[devices]]
workers = 3
speed = 0.5

[cpu_machines]
count = 4
bandwidth = "25Gbps"
)";

TEST(ParseCluster, ReadsUnequalDevicesInAnyOrderAndCpuMachines) {
  Cluster expected;
  expected.levels = {{"level0", 8, 1'250'000'000, 0, false}};
  expected.device = {"v100", 16'000'000'000, 1.0};
  // What a group leaves out is as in [device].
  expected.groups = {{3, 1, {"v100", 16'000'000'000, 0.5}}, {6, 2, {"a100", 40'000'000'000, 2.5}}};
  expected.cpu_machines = {4, 3'125'000'000};
  EXPECT_EQ(parse_cluster(kMixedCluster, "c.toml"), expected);
}

constexpr std::string_view kMachines = R"([[level]]
count = 4
bandwidth = "10GB/s"

[[level]]
count = 2
bandwidth = "8GB/s"
machine = true

[[level]]
count = 3
bandwidth = "100Gbps"

[machine]
switches = 2
device_bandwidth = "13GB/s"
switch_bandwidth = "12GB/s"
cross_bandwidth = "80Gbps"
nvlink = "150GB/s"
network_card = 1
)";

TEST(ParseCluster, ReadsWhatIsInsideAMachine) {
  const Cluster cluster = parse_cluster(kMachines, "c.toml");
  EXPECT_EQ(cluster.machine_level(), 2);
  EXPECT_EQ(cluster.machine,
            (Machine{2, 13'000'000'000, 12'000'000'000, 10'000'000'000, 150'000'000'000, 1}));
  EXPECT_EQ(parse_cluster(to_toml(cluster), "again"), cluster);
}

TEST(ParseCluster, NamesTheLineOfWhatCannotBeInsideAMachine) {
  const auto with = [](std::string_view from, std::string_view to) {
    std::string text(kMachines);
    text.replace(text.find(from), from.size(), to);
    return refusal(text);
  };
  EXPECT_THAT(with("count = 3", "machine = true\ncount = 3"),
              AllOf(StartsWith("c.toml:11: level[2].machine: "), HasSubstr("'level1' inside")));
  EXPECT_THAT(with("switches = 2", "switches = 0"), StartsWith("c.toml:15: machine.switches: "));
  EXPECT_THAT(with("switches = 2", "switches = -1"), HasSubstr("found -1"));
  EXPECT_THAT(with("switches = 2", "switches = 3"),
              AllOf(StartsWith("c.toml:15: machine.switches: "), HasSubstr("8 devices")));
  EXPECT_THAT(with("switches = 2", "switches = 9"), HasSubstr("found 9"));
  EXPECT_THAT(with("switches = 2", "switches = 2000000000"), HasSubstr("found 2000000000"));
  EXPECT_THAT(with("switches = 2\n", ""), HasSubstr("'switches' is missing"));
  EXPECT_THAT(with("cross_bandwidth = \"80Gbps\"\n", ""),
              HasSubstr("'cross_bandwidth' is missing"));
  EXPECT_THAT(with("\"12GB/s\"", "0"), StartsWith("c.toml:17: machine.switch_bandwidth: "));
  EXPECT_THAT(with("\"13GB/s\"", "\"-1GB/s\""), HasSubstr("'-1GB/s'"));
  EXPECT_THAT(with("\"150GB/s\"", "0"), StartsWith("c.toml:19: machine.nvlink: "));
  EXPECT_THAT(with("network_card = 1", "network_card = 2"),
              AllOf(StartsWith("c.toml:20: machine.network_card: "), HasSubstr("0 to 1, found 2")));
  EXPECT_THAT(with("network_card = 1", "network_card = -1"), HasSubstr("found -1"));
  EXPECT_THAT(with("network_card = 1", "nic = 1"), HasSubstr("'nic'"));
  EXPECT_THAT(refusal("[[level]]\ncount = 4\nbandwidth = 1\n[machine]\nswitches = 1\n"
                      "device_bandwidth = 1\nswitch_bandwidth = 1\n"),
              AllOf(StartsWith("c.toml:5: "), HasSubstr("machine = true")));
}

TEST(ParseCluster, OneSwitchNeedsNoBandwidthAcross) {
  const Cluster cluster = parse_cluster(
      "[[level]]\ncount = 4\nbandwidth = 1\nmachine = true\n[machine]\nswitches = 1\n"
      "device_bandwidth = 1\nswitch_bandwidth = 2\n",
      "c.toml");
  EXPECT_EQ(cluster.machine, (Machine{1, 1, 2}));
}

TEST(ParseCluster, TakesNoCpuMachinesAsSwitchedOff) {
  const Cluster cluster =
      parse_cluster("cpu_machines = {count = 0}\n[[level]]\ncount = 1\nbandwidth = 1\n", "c.toml");
  EXPECT_EQ(cluster.cpu_machines, CpuMachines{});
}

/// The refusal of a cluster of 8 workers with these lines, the first of which is line 4.
std::string refusal_after_eight(const std::string& text) {
  return refusal("[[level]]\ncount = 8\nbandwidth = 1\n" + text);
}

TEST(ParseCluster, NamesTheLineOfGroupsThatOverlapOrLieBeyondTheWorkers) {
  const std::string first = "[[devices]]\nworkers = \"2-4\"\n";
  EXPECT_THAT(refusal_after_eight(first + "[[devices]]\nworkers = 4\n"),
              AllOf(StartsWith("c.toml:6: "), HasSubstr("overlaps"), HasSubstr("2-4")));
  EXPECT_THAT(refusal_after_eight("[[devices]]\nworkers = \"7-8\"\n"),
              AllOf(StartsWith("c.toml:5: devices[0].workers: "), HasSubstr("workers 7-8"),
                    HasSubstr("from 0 to 7")));
  EXPECT_THAT(
      refusal_after_eight(first + "speed = nan\n"),
      AllOf(StartsWith("c.toml:6: devices[0].speed: "), HasSubstr("above zero, found nan")));
  EXPECT_THAT(refusal_after_eight(first + "sped = 1\n"),
              AllOf(StartsWith("c.toml:6: "), HasSubstr("'sped'")));
  EXPECT_THAT(refusal_after_eight("[[devices]]\nspeed = 1\n"),
              AllOf(StartsWith("c.toml:4: "), HasSubstr("'workers' is missing")));
  EXPECT_THAT(refusal_after_eight("[cpu_machines]\ncount = 2\n"),
              AllOf(StartsWith("c.toml:4: "), HasSubstr("'bandwidth' is missing")));
}

TEST(ParseCluster, NamesTheLineOfTheLevelThatMakesTooManyWorkers) {
  EXPECT_THAT(
      refusal("[[level]]\ncount = 100000\nbandwidth = 1\n[[level]]\nbandwidth = 1\ncount = "
              "2000000000\n"),
      AllOf(StartsWith("c.toml:6: level[1].count: "), HasSubstr("200000000000000 workers")));
}

TEST(ParseCluster, RefusesRangesThatAreNone) {
  for (const std::string range : {"\"\"",
                                  "\"-\"",
                                  "\"4-\"",
                                  "\"-4\"",
                                  "-4",
                                  "\"5-4\"",
                                  "\"4--5\"",
                                  "\"0x1\"",
                                  "\"1,2\"",
                                  "\" 1\"",
                                  "\"1-2-3\"",
                                  "8",
                                  "\"0-8\"",
                                  "\"0-2147483647\"",
                                  "\"2147483647-2147483647\"",
                                  "\"0-99999999999999999999\"",
                                  "1000000000000000000",
                                  "[1, 2]",
                                  "1.0",
                                  "true"}) {
    EXPECT_THAT(refusal_after_eight("[[devices]]\nworkers = " + range + "\n"),
                StartsWith("c.toml:5: devices[0].workers: "))
        << range;
  }
}

TEST(ParseCluster, NamesPlaceLineKeyAndFinding) {
  EXPECT_THAT(refusal("[[level]]\ncount = 0\nbandwidth = 1\n"),
              AllOf(StartsWith("c.toml:2: level[0].count:"), HasSubstr("found 0")));
  EXPECT_THAT(refusal("[[level]]\ncount = 1\nbandwidth = \"10GB\"\n"),
              AllOf(StartsWith("c.toml:3: level[0].bandwidth:"), HasSubstr("'10GB'")));
  EXPECT_THAT(refusal("[[level]]\ncount = \"4\"\nbandwidth = 1\n"),
              HasSubstr("expected an integer, found a string"));
  EXPECT_THAT(refusal("[[level]]\ncount = 1\n"),
              AllOf(StartsWith("c.toml:1: "), HasSubstr("'bandwidth' is missing")));
  EXPECT_THAT(refusal("[[level]]\ncount = = 1\n"), StartsWith("c.toml:2: not valid TOML"));
  EXPECT_THAT(refusal("[[level]]\ncount = 1\nbandwidth = 1\n[device]\nspeed = \"fast\"\n"),
              StartsWith("c.toml:5: device.speed"));
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
        std::string("[[level]]\ncount = 1000000000\nbandwidth = 1\n[[level]]\ncount = "
                    "1000000000\nbandwidth = 1\n"),
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
        "devices = 3\n" + level,
        "devices = [0]\n" + level,
        level + "[devices]\nworkers = 0\n",
        level + "[[devices]]\nworkers = 0\n[[devices]]\nworkers = 0\n",
        level + "[[devices]]\nworkers = 0\nmemory = \"1e18GB\"\n",
        level + "[[devices]]\nworkers = 0\nspeed = inf\n",
        level + "[[devices]]\nworkers = 1\n",
        "cpu_machines = 4\n" + level,
        level + "[[cpu_machines]]\ncount = 1\nbandwidth = 1\n",
        level + "[cpu_machines]\ncount = -1\nbandwidth = 1\n",
        level + "[cpu_machines]\ncount = 1000000000000000000\nbandwidth = 1\n",
        level + "[cpu_machines]\ncount = 2000000000\nbandwidth = 1\n",
        level + "[cpu_machines]\ncount = 1\nbandwidth = 0\n",
        level + "[cpu_machines]\ncount = 1\nbandwidth = nan\n",
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

TEST(LoadCluster, ReadsEveryExample) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(PENSTOCK_EXAMPLE_CLUSTERS)) {
    SCOPED_TRACE(entry.path());
    ASSERT_EQ(entry.path().extension(), ".toml");
    const Cluster cluster = load_cluster(entry.path());
    EXPECT_GT(cluster.num_workers(), 1);
    EXPECT_EQ(parse_cluster(to_toml(cluster), "again"), cluster);
    ++files;
  }
  EXPECT_GE(files, 7);
}

TEST(LoadCluster, ReadsThePapersClusters) {
  const std::filesystem::path folder = PENSTOCK_EXAMPLE_CLUSTERS;
  const Cluster a = load_cluster(folder / "cluster-a.toml");
  ASSERT_EQ(a.levels.size(), 2U);
  EXPECT_EQ(a.levels[0].count, 4);
  EXPECT_EQ(a.levels[1].bandwidth_bytes_per_s, 1'250'000'000);
  EXPECT_EQ(a.device.memory_bytes, 16'000'000'000);
  const Cluster b = load_cluster(folder / "cluster-b.toml");
  EXPECT_EQ(b.levels[0].count, 8);
  EXPECT_EQ(b.levels[0].bandwidth_bytes_per_s, 30'000'000'000);
  EXPECT_EQ(b.levels[1].bandwidth_bytes_per_s, 3'125'000'000);
  const Cluster c = load_cluster(folder / "cluster-c.toml");
  EXPECT_EQ(c.num_workers(), 4);
  EXPECT_EQ(c.levels.back().bandwidth_bytes_per_s, 5'000'000'000);
  EXPECT_EQ(c.device.memory_bytes, 12'000'000'000);
}

TEST(ToToml, WritesUnitsThatPeopleRead) {
  const Cluster cluster = parse_cluster(kTwoServers, "c.toml");
  EXPECT_THAT(to_toml(cluster),
              AllOf(HasSubstr("bandwidth = \"12GB/s\""), HasSubstr("latency = \"20us\""),
                    HasSubstr("memory = \"16GB\"")));
}

rc::Gen<Cluster> any_cluster() {
  const auto quantity = [](int64_t least) {
    return rc::gen::inRange<int64_t>(least, int64_t{1} << 62);
  };
  const auto name = rc::gen::container<std::string>(rc::gen::inRange<char>(1, 127));
  const auto level = rc::gen::build<Level>(
      rc::gen::set(&Level::name, name), rc::gen::set(&Level::count, rc::gen::inRange(1, 10)),
      rc::gen::set(&Level::bandwidth_bytes_per_s, quantity(1)),
      rc::gen::set(&Level::latency_ns, quantity(0)), rc::gen::set(&Level::by_reference),
      rc::gen::set(&Level::sums_wait),
      rc::gen::set(&Level::processor_ns_per_gb,
                   rc::gen::oneOf(rc::gen::just(int64_t{0}), quantity(1))),
      rc::gen::set(&Level::processor_ns_per_message,
                   rc::gen::oneOf(rc::gen::just(int64_t{0}), quantity(1))));
  const auto speed = rc::gen::map(rc::gen::inRange<int64_t>(1, 1'000'000'000),
                                  [](int64_t n) { return static_cast<double>(n) / 3e4; });
  const auto device = rc::gen::build<Device>(rc::gen::set(&Device::name, name),
                                             rc::gen::set(&Device::memory_bytes, quantity(0)),
                                             rc::gen::set(&Device::speed, speed));
  const auto levels = rc::gen::mapcat(rc::gen::inRange<size_t>(1, 5), [=](size_t count) {
    return rc::gen::container<std::vector<Level>>(count, level);
  });
  const auto machines =
      rc::gen::build<CpuMachines>(rc::gen::set(&CpuMachines::count, rc::gen::inRange(0, 100)),
                                  rc::gen::set(&CpuMachines::bandwidth_bytes_per_s, quantity(1)));
  const auto without_groups = rc::gen::build<Cluster>(
      rc::gen::set(&Cluster::levels, levels), rc::gen::set(&Cluster::device, device),
      rc::gen::set(&Cluster::cpu_machines, rc::gen::oneOf(rc::gen::just(CpuMachines{}), machines)));
  const auto inside = rc::gen::build<Machine>(
      rc::gen::set(&Machine::switches, rc::gen::inRange(1, 3)),
      rc::gen::set(&Machine::device_bytes_per_s, quantity(1)),
      rc::gen::set(&Machine::switch_bytes_per_s, quantity(1)),
      rc::gen::set(&Machine::cross_bytes_per_s, quantity(1)),
      rc::gen::set(&Machine::nvlink_bytes_per_s, rc::gen::oneOf(rc::gen::just(0L), quantity(1))),
      rc::gen::set(&Machine::network_card, rc::gen::inRange(-1, 1)));
  // Gap, length, gap, length... for as long as the workers last.
  const auto pieces = rc::gen::container<std::vector<std::tuple<int, int, Device>>>(
      rc::gen::tuple(rc::gen::inRange(0, 4), rc::gen::inRange(1, 5), device));
  const auto described = rc::gen::tuple(rc::gen::inRange<size_t>(0, 7), inside);
  using Parts =
      std::tuple<Cluster, std::vector<std::tuple<int, int, Device>>, std::tuple<size_t, Machine>>;
  return rc::gen::map(rc::gen::tuple(without_groups, pieces, described), [](const Parts& parts) {
    Cluster cluster = std::get<0>(parts);
    int next = 0;
    for (const auto& [gap, count, group_device] : std::get<1>(parts)) {
      if (next + gap + count > cluster.num_workers()) break;
      cluster.groups.push_back({next + gap, count, group_device});
      next += gap + count;
    }
    auto [machine_level, machine] = std::get<2>(parts);
    if (machine_level < cluster.levels.size()) {
      cluster.levels[machine_level].machine = true;
      if (cluster.levels[machine_level].count % 2 != 0) machine.switches = 1;
      cluster.machine = machine;
      if (machine.switches == 1) cluster.machine->network_card = -1;
    }
    return cluster;
  });
}

RC_GTEST_PROP(ToToml, ParsesBackToTheSameCluster, ()) {
  const Cluster cluster = *any_cluster();
  const std::string text = to_toml(cluster);
  RC_LOG() << text;
  RC_ASSERT(parse_cluster(text, "c.toml") == cluster);
}

RC_GTEST_PROP(ParseCluster, DamagedTextIsReadOrRefused, (uint64_t seed)) {
  for (const std::string_view whole : {kTwoServers, kMixedCluster, kMachines}) {
    for (const std::string& text : tests::mutants(std::string(whole), seed, 20)) {
      try {
        validate(parse_cluster(text, "c.toml"));
      } catch (const ParseError&) {
      }
    }
  }
}

}  // namespace
}  // namespace penstock::cluster
