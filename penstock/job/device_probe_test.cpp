#include "penstock/job/device_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/model/device/testing_other_device.h"
#include "penstock/util/error.h"
#include "penstock/util/files/json.h"

namespace penstock::job {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const at::Device kFirst(at::kCUDA, 0);
const at::Device kSecond(at::kCUDA, 1);

probe::Measurement of(double median) {
  return {.median = median, .low = median, .high = median, .samples = 3};
}

DeviceFigures figures(const std::string& device, double flops, int64_t memory) {
  return {.device = device,
          .name = "A card",
          .memory_bytes = memory,
          .flops = of(flops),
          .short_flops = of(2 * flops),
          .copied_bytes_per_s = of(1e12),
          .to_host_bytes_per_s = of(12e9),
          .from_host_bytes_per_s = of(11e9)};
}

DeviceProbe known() {
  return {.devices = {figures("cuda:0", 1e13, 80'123'456'789),
                      figures("cuda:1", 1.03e13, 80'150'000'000),
                      figures("cuda:2", 5e12, 16'000'000'000)},
          .links = {{.from = 0, .to = 1, .bytes_per_s = of(123.456e9), .latency_ns = of(7000)},
                    {.from = 1, .to = 2, .bytes_per_s = of(10.04e9), .latency_ns = of(9876)}},
          .message_bytes = 4'000'000};
}

TEST(DeviceProbe, MeasuresEveryDeviceAndEveryPair) {
  model::OtherDevices devices(2);
  std::vector<std::string> told;
  const DeviceProbe found =
      probe_devices(devices, {kFirst, kSecond},
                    {.message_bytes = 1 << 20,
                     .seconds = 0.2,
                     .progress = [&](int done, int total, const std::string&) {
                       EXPECT_LE(done, total);
                       EXPECT_EQ(total, 14);
                       told.push_back(std::to_string(done));
                     }});
  ASSERT_EQ(found.devices.size(), 2u);
  ASSERT_EQ(found.links.size(), 2u);
  for (const DeviceFigures& device : found.devices) {
    for (const auto* measured : {&device.flops, &device.short_flops, &device.copied_bytes_per_s,
                                 &device.to_host_bytes_per_s, &device.from_host_bytes_per_s}) {
      EXPECT_GT(measured->low, 0);
      EXPECT_LE(measured->low, measured->median);
      EXPECT_LE(measured->median, measured->high);
      EXPECT_GE(measured->samples, probe::kFewestSamples);
    }
    // A core computes between 0.1 GFLOP/s and 10 TFLOP/s.
    EXPECT_GT(device.flops.median, 1e8);
    EXPECT_LT(device.flops.median, 1e13);
  }
  for (const DeviceLink& link : found.links) {
    EXPECT_NE(link.from, link.to);
    EXPECT_GT(link.bytes_per_s.median, 1e7);
    EXPECT_GT(link.latency_ns.median, 10);
    EXPECT_LT(link.latency_ns.median, 1e8);
  }
  EXPECT_EQ(told.size(), 15u);
  EXPECT_EQ(told.back(), "14");
}

TEST(DeviceProbe, WorkersOnSeveralGpusAreJoinedByTheSlowestLink) {
  model::OtherDevices devices(3);
  int measured = 0;
  const cluster::Level level = measured_level(
      devices, {kFirst, kSecond, at::Device(at::kCUDA, 2)},
      {.message_bytes = 1 << 20, .seconds = 0.2, .progress = [&](int, int total, const auto&) {
         EXPECT_EQ(total, 12);
         ++measured;
       }});
  EXPECT_EQ(measured, 13);
  EXPECT_GT(level.bandwidth_bytes_per_s, 10'000'000);
  EXPECT_GT(level.latency_ns, 10);
  EXPECT_FALSE(level.by_reference);
  EXPECT_TRUE(level.sums_wait);
}

TEST(DeviceProbe, OneDeviceSendsToItself) {
  model::OtherDevices devices(1);
  const DeviceProbe found =
      probe_devices(devices, {kFirst}, {.message_bytes = 4096, .seconds = 0.1});
  ASSERT_EQ(found.links.size(), 1u);
  EXPECT_EQ(cluster_of(found).num_workers(), 1);
  EXPECT_THAT(notes(found), ::testing::Contains(HasSubstr("one device")));
}

TEST(DeviceProbe, TheClusterHasTheSlowestLinkAndTheDevicesThatDiffer) {
  const cluster::Cluster found = cluster_of(known());
  ASSERT_EQ(found.levels.size(), 1u);
  EXPECT_EQ(found.levels[0].count, 3);
  EXPECT_EQ(found.levels[0].bandwidth_bytes_per_s, 10'000'000'000);
  EXPECT_EQ(found.levels[0].latency_ns, 9880);
  EXPECT_FALSE(found.levels[0].by_reference);
  EXPECT_TRUE(found.levels[0].sums_wait);
  EXPECT_EQ(found.device.memory_bytes, 80'100'000'000);
  EXPECT_EQ(found.device.host_bytes_per_s, 11'000'000'000);
  // The second one is as the first: 3 % more is noise.
  ASSERT_EQ(found.groups.size(), 1u);
  EXPECT_EQ(found.groups[0].first, 2);
  EXPECT_EQ(found.groups[0].device.speed, 0.5);
  EXPECT_EQ(found.groups[0].device.memory_bytes, 16'000'000'000);
}

TEST(DeviceProbe, LinksThatDifferAreSaid) {
  EXPECT_THAT(notes(known()), ElementsAre(HasSubstr("cuda:1 to cuda:2")));
  DeviceProbe even = known();
  even.links[0].bytes_per_s = even.links[1].bytes_per_s;
  EXPECT_THAT(notes(even), IsEmpty());
}

TEST(DeviceProbe, TheFileIsAClusterFile) {
  const std::string text = to_toml(known());
  EXPECT_EQ(cluster::parse_cluster(text, "text"), cluster_of(known()));
  EXPECT_THAT(text, HasSubstr("cuda:0 to cuda:1"));
  const Json document = parse_json(to_json(known()), "json");
  EXPECT_EQ(document["devices"][2]["flops"]["median"], 5'000'000'000'000);
  EXPECT_EQ(document["links"][1]["from"], "cuda:1");
  EXPECT_EQ(cluster::parse_cluster(document["cluster_toml"].get<std::string>(), "json"),
            cluster_of(known()));
}

TEST(DeviceProbe, SizesAreChecked) {
  model::OtherDevices devices(1);
  EXPECT_THROW(probe_devices(devices, {kFirst}, {.message_bytes = 1}), ConfigError);
  EXPECT_THROW(probe_devices(devices, {kFirst}, {.seconds = 0}), ConfigError);
}

}  // namespace
}  // namespace penstock::job
