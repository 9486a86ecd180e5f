#include "penstock/planner/machines/machines.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "penstock/util/error.h"

namespace penstock::planner {
namespace {

constexpr const char* kTwoKinds = R"(
[network]
bandwidth = "1Gbps"
latency = "200us"

[[machine]]
name = "desk"
device = "v100"
count = 2

[[machine]]
device = "t4"
memory = "8GB"
)";

TEST(Machines, EachDeviceIsAWorkerInTheOrderOfTheList) {
  const Machines machines = parse_machines(kTwoKinds, "hosts.toml");
  EXPECT_EQ(machines.num_machines(), 3);
  EXPECT_EQ(machines.num_devices(), 3);
  const cluster::Cluster cluster = cluster_of(machines, {1.0, 0.5});
  ASSERT_EQ(cluster.levels.size(), 1U);
  EXPECT_EQ(cluster.levels[0].count, 3);
  EXPECT_EQ(cluster.levels[0].bandwidth_bytes_per_s, 125'000'000);
  EXPECT_EQ(cluster.levels[0].latency_ns, 200'000);
  EXPECT_EQ(cluster.device_of(1).name, "desk");
  EXPECT_EQ(cluster.device_of(1).memory_bytes, 16'000'000'000);
  EXPECT_EQ(cluster.device_of(2).name, "t4");
  EXPECT_EQ(cluster.device_of(2).memory_bytes, 8'000'000'000);
  EXPECT_DOUBLE_EQ(cluster.device_of(2).speed, 0.5);
  EXPECT_EQ(kind_of_worker(machines, 1), 0U);
  EXPECT_EQ(kind_of_worker(machines, 2), 1U);
}

TEST(Machines, EqualNumbersOfDevicesAreALevelInside) {
  const Machines machines = parse_machines(R"(
network = {bandwidth = "10Gbps"}
[[machine]]
device = "v100"
devices = 4
bandwidth = "12GB/s"
[[machine]]
device = "v100"
devices = 4
bandwidth = "10GB/s"
latency = "5us")",
                                           "hosts.toml");
  const cluster::Cluster cluster = cluster_of(machines, {1.0, 1.0});
  ASSERT_EQ(cluster.levels.size(), 2U);
  EXPECT_EQ(cluster.levels[0].count, 4);
  EXPECT_TRUE(cluster.levels[0].machine);
  EXPECT_EQ(cluster.levels[0].bandwidth_bytes_per_s, 10'000'000'000);  // the slower one
  EXPECT_EQ(cluster.levels[0].latency_ns, 5'000);
  EXPECT_EQ(cluster.levels[1].count, 2);
}

TEST(Machines, OtherNumbersOfDevicesShareTheLinkOfTheLargest) {
  const Machines machines = parse_machines(R"(
network = {bandwidth = "10Gbps"}
[[machine]]
device = "v100"
devices = 2
bandwidth = "12GB/s"
[[machine]]
device = "v100")",
                                           "hosts.toml");
  const cluster::Cluster cluster = cluster_of(machines, {1.0, 1.0});
  ASSERT_EQ(cluster.levels.size(), 1U);
  EXPECT_EQ(cluster.levels[0].count, 3);
  EXPECT_EQ(cluster.levels[0].bandwidth_bytes_per_s, 625'000'000);
}

TEST(Machines, OneMachineNeedsNoNetwork) {
  EXPECT_EQ(parse_machines("[[machine]]\ndevice = \"v100\"", "hosts.toml").num_machines(), 1);
}

TEST(Machines, WhatIsWrongIsNamedWithItsLine) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "at least one [[machine]]"},
      {"[[machine]]\ndevice = \"v100\"\ncount = 2", "a [network] between several machines"},
      {"[[machine]]\nname = \"desk\"", "device"},
      {"[[machine]]\ndevice = \"v101\"", "unknown device 'v101'"},
      {"[[machine]]\ndevice = \"no/such.toml\"", "no/such.toml"},
      {"[[machine]]\ndevice = \"v100\"\ncount = 0", "count"},
      {"[[machine]]\ndevice = \"v100\"\ndevices = 2", "bandwidth"},
      {"[[machine]]\ndevice = \"v100\"\ndevices = 2\nbandwidth = 0", "bandwidth"},
      {"[[machine]]\ndevice = \"v100\"\nspeed = 2.0", "speed"},
      {"[[machine]]\ndevice = \"v100\"\ncount = 10000001", "10000000"},
      {"[network]\nbandwidth = 0\n[[machine]]\ndevice = \"v100\"", "above zero"},
      {"[network]\n[[machine]]\ndevice = \"v100\"", "bandwidth"},
      {"machine = 3", "machine"},
  };
  for (const auto& [text, expected] : cases) {
    try {
      parse_machines(text, "hosts.toml");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("hosts.toml"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace penstock::planner
