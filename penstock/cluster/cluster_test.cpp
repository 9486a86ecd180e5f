#include "penstock/cluster/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <climits>
#include <cmath>
#include <vector>

#include "penstock/util/error.h"
#include "tests/support/mutate.h"

namespace penstock::cluster {
namespace {

using ::testing::HasSubstr;

Cluster two_servers() {
  Cluster cluster;
  cluster.levels = {{"server", 4, 12'000'000'000, 5'000, false},
                    {"rack", 2, 1'250'000'000, 20'000, false}};
  return cluster;
}

template <class Change>
std::string refusal_after(Change change) {
  Cluster cluster = two_servers();
  change(cluster);
  return tests::message_of<ConfigError>([&] { validate(cluster); });
}

TEST(Cluster, NumberOfWorkersIsTheProductOfTheCounts) {
  EXPECT_EQ(two_servers().num_workers(), 8);
  EXPECT_EQ(local_cluster(3, 1).num_workers(), 3);
}

TEST(Cluster, MachinesAreUnitsOfTheMarkedLevelOrTheInnermostOfSeveral) {
  Cluster cluster = two_servers();
  EXPECT_EQ(cluster.machine_level(), 1);
  cluster.levels[1].machine = true;
  EXPECT_EQ(cluster.machine_level(), 2);
  EXPECT_EQ(local_cluster(3, 1).machine_level(), 0);
  EXPECT_THAT(refusal_after([](Cluster& c) { c.levels[0].machine = c.levels[1].machine = true; }),
              HasSubstr("found two: 'server' inside 'rack'"));
}

TEST(Cluster, DescriptionsOfMachinesMustFitThem) {
  const Machine machine{2, 1, 1, 1};
  Cluster cluster = two_servers();
  cluster.machine = machine;
  EXPECT_NO_THROW(validate(cluster));
  EXPECT_THAT(refusal_after([&](Cluster& c) {
                c.machine = machine;
                c.machine->switches = 8;
              }),
              HasSubstr("4 devices"));
  EXPECT_THAT(refusal_after([&](Cluster& c) {
                c.machine = machine;
                c.levels.pop_back();
              }),
              HasSubstr("machine = true"));
  for (const auto field :
       {&Machine::device_bytes_per_s, &Machine::switch_bytes_per_s, &Machine::cross_bytes_per_s}) {
    EXPECT_THAT(refusal_after([&](Cluster& c) {
                  c.machine = machine;
                  *c.machine.*field = 0;
                }),
                HasSubstr("above zero, found 0"));
  }
  for (const int card : {-2, 2}) {
    EXPECT_THAT(refusal_after([&](Cluster& c) {
                  c.machine = machine;
                  c.machine->network_card = card;
                }),
                HasSubstr("switches 0 to 1"));
  }
}

TEST(Cluster, NumberOfWorkersDoesNotWrap) {
  Cluster cluster;
  cluster.levels.assign(5, {"x", INT_MAX, 1, 0, false});
  EXPECT_EQ(cluster.num_workers(), INT_MAX);
}

TEST(LocalCluster, MovesTensorsByReferenceAndSumsAtCopyBandwidth) {
  const Cluster cluster = local_cluster(2, 10'000'000'000);
  ASSERT_EQ(cluster.levels.size(), 1U);
  EXPECT_TRUE(cluster.levels[0].by_reference);
  EXPECT_EQ(cluster.levels[0].bandwidth_bytes_per_s, 10'000'000'000);
  EXPECT_NO_THROW(validate(cluster));
}

TEST(LocalCluster, RefusesNoWorkersAndNoBandwidth) {
  EXPECT_THROW(local_cluster(0, 1), ConfigError);
  EXPECT_THROW(local_cluster(-1, 1), ConfigError);
  EXPECT_THROW(local_cluster(1, 0), ConfigError);
  EXPECT_THROW(local_cluster(INT_MAX, 1), ConfigError);
}

TEST(Cluster, DeviceOfAWorkerIsItsGroupsOrTheCommonOne) {
  Cluster cluster = two_servers();
  cluster.groups = {
      {1, 2, {"slow", 0, 0.5}}, {3, 1, {"slower", 0, 0.25}}, {6, 2, {"fast", 0, 2.0}}};
  EXPECT_NO_THROW(validate(cluster));
  std::vector<double> speeds;
  for (int worker = 0; worker < 8; ++worker) speeds.push_back(cluster.device_of(worker).speed);
  EXPECT_EQ(speeds, (std::vector<double>{1, 0.5, 0.5, 0.25, 1, 1, 2, 2}));
}

TEST(Cluster, IsUniformWhenAllWorkersHaveTheSameSpeedAndMemory) {
  Cluster cluster = two_servers();
  EXPECT_TRUE(cluster.uniform());
  cluster.groups = {{0, 4, {"another name", 0, 1.0}}};
  EXPECT_TRUE(cluster.uniform());
  cluster.groups = {{0, 4, {"fast", 0, 2.0}}};
  EXPECT_FALSE(cluster.uniform());
  // nobody has the common device
  cluster.groups = {{0, 4, {"fast", 0, 2.0}}, {4, 4, {"fast", 0, 2.0}}};
  EXPECT_TRUE(cluster.uniform());
  cluster.groups[1].device.memory_bytes = 1;
  EXPECT_FALSE(cluster.uniform());
}

TEST(ValidateCluster, RefusesGroupsThatOverlapOrAreOutOfOrderOrBeyondTheWorkers) {
  EXPECT_THAT(refusal_after([](Cluster& c) {
                c.groups = {{0, 4, {}}, {3, 1, {}}};
              }),
              HasSubstr("overlaps the group of workers 0-3"));
  EXPECT_THAT(refusal_after([](Cluster& c) {
                c.groups = {{4, 1, {}}, {3, 1, {}}};
              }),
              HasSubstr("comes after the group of workers 4"));
  EXPECT_THAT(refusal_after([](Cluster& c) {
                c.groups = {{7, 2, {}}};
              }),
              HasSubstr("expected workers from 0 to 7"));
  EXPECT_THAT(refusal_after([](Cluster& c) {
                c.groups = {{-1, 1, {}}};
              }),
              HasSubstr("expected workers from 0 to 7"));
  EXPECT_THAT(refusal_after([](Cluster& c) {
                c.groups = {{0, 0, {}}};
              }),
              HasSubstr("count of at least 1, found 0"));
  EXPECT_THAT(refusal_after([](Cluster& c) {
                c.groups = {{INT_MAX, INT_MAX, {}}};
              }),
              HasSubstr("expected workers from 0 to 7"));
  EXPECT_THAT(refusal_after([](Cluster& c) {
                c.groups = {{0, 1, {"x", 0, 0.0}}};
              }),
              HasSubstr("speed above zero"));
  EXPECT_THAT(refusal_after([](Cluster& c) {
                c.groups = {{0, 1, {"x", -5, 1.0}}};
              }),
              HasSubstr("memory of at least 0, found -5"));
}

TEST(ValidateCluster, RefusesCpuMachinesWithoutBandwidth) {
  EXPECT_THAT(refusal_after([](Cluster& c) {
                c.cpu_machines = {4, 0};
              }),
              HasSubstr("bandwidth above zero"));
  EXPECT_THAT(refusal_after([](Cluster& c) {
                c.cpu_machines = {-1, 1};
              }),
              HasSubstr("count from 0"));
  Cluster cluster = two_servers();
  cluster.cpu_machines = {4, 1};
  EXPECT_NO_THROW(validate(cluster));
}

TEST(ValidateCluster, NamesTheLevelAndTheValue) {
  EXPECT_THAT(refusal_after([](Cluster& c) { c.levels.clear(); }), HasSubstr("no level"));
  EXPECT_THAT(refusal_after([](Cluster& c) { c.levels[1].count = 0; }),
              HasSubstr("level 1 ('rack'): expected a count of at least 1, found 0"));
  EXPECT_THAT(refusal_after([](Cluster& c) { c.levels[0].bandwidth_bytes_per_s = 0; }),
              HasSubstr("bandwidth above zero"));
  EXPECT_THAT(refusal_after([](Cluster& c) { c.levels[0].latency_ns = -1; }), HasSubstr("latency"));
  EXPECT_THAT(refusal_after([](Cluster& c) { c.device.memory_bytes = -1; }), HasSubstr("memory"));
}

TEST(ValidateCluster, RefusesSpeedsThatAreNotPositiveNumbers) {
  for (const double speed : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_THAT(refusal_after([&](Cluster& c) { c.device.speed = speed; }), HasSubstr("speed"))
        << speed;
  }
}

TEST(ValidateCluster, RefusesMoreThanTenMillionWorkersEvenIfTheProductOverflows) {
  EXPECT_THAT(refusal_after([](Cluster& c) { c.levels[0].count = 5'000'001; }),
              HasSubstr("10000002 workers"));
  EXPECT_THAT(refusal_after([](Cluster& c) {
                c.levels.assign(5, {"x", 1 << 30, 1, 0, false});
              }),
              HasSubstr("workers"));
  Cluster largest = two_servers();
  largest.levels[0].count = 5'000'000;
  EXPECT_NO_THROW(validate(largest));
}

}  // namespace
}  // namespace penstock::cluster
