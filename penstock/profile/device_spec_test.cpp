#include "penstock/profile/device_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <filesystem>
#include <set>

#include "penstock/util/error.h"
#include "tests/support/mutate.h"

namespace penstock::profile {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

std::string device_refusal(const std::string& text) {
  try {
    parse_device(text, "d.toml");
  } catch (const ParseError& error) {
    return error.what();
  }
  return "accepted";
}

constexpr const char* kLeast = "name = \"x\"\nflops = \"1TFLOP/s\"\nbandwidth = \"100GB/s\"\n";

TEST(DeviceSpec, BuiltInOnesAreValidAndHaveDistinctNames) {
  std::set<std::string> names;
  for (const DeviceSpec& device : builtin_devices()) {
    SCOPED_TRACE(device.name);
    EXPECT_NO_THROW(validate(device));
    EXPECT_TRUE(names.insert(device.name).second);
    EXPECT_EQ(find_device(device.name), device);
    EXPECT_EQ(parse_device(to_toml(device), "again"), device);
  }
  EXPECT_THAT(names,
              testing::IsSupersetOf({"v100", "a100", "h100", "t4", "p100", "titan-x", "cpu-core"}));
}

TEST(DeviceSpec, DataSheetOfTheV100) {
  const DeviceSpec v100 = find_device("v100");
  EXPECT_EQ(v100.flops_per_s, 15'700'000'000'000);
  EXPECT_EQ(v100.bandwidth_bytes_per_s, 900'000'000'000);
  EXPECT_EQ(v100.memory_bytes, 16'000'000'000);
}

TEST(DeviceSpec, UnknownNamesAreRefusedWithTheKnownOnes) {
  try {
    find_device("v1000");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("'v1000'"), HasSubstr("v100, "), HasSubstr(".toml")));
  }
  EXPECT_THROW(find_device("no/such/file"), ConfigError);
  EXPECT_THROW(find_device(""), ConfigError);
  EXPECT_THROW(find_device(std::string(100'000, 'x')), ConfigError);
}

TEST(DeviceSpec, ReadsEveryKey) {
  const DeviceSpec device = parse_device(R"(
name = "board"
flops = "2.5TFLOP/s"
bandwidth = "60GB/s"
memory = "8GiB"
launch = "20us"
half_speed_products = 32
winograd = false
[efficiency]
memory = 0.6
normalization = 0.5
matmul = 1
convolution = 0.45
)",
                                         "d.toml");
  const DeviceSpec expected{
      .name = "board",
      .flops_per_s = 2'500'000'000'000,
      .bandwidth_bytes_per_s = 60'000'000'000,
      .memory_bytes = int64_t{8} << 30,
      .launch_ns = 20'000,
      .efficiency = {.memory = 0.6, .normalization = 0.5, .matmul = 1, .convolution = 0.45},
      .half_speed_products = 32,
      .winograd = false};
  EXPECT_EQ(device, expected);
}

TEST(DeviceSpec, MissingKeysHaveTheirDefaults) {
  const DeviceSpec device = parse_device(kLeast, "d.toml");
  EXPECT_EQ(device.memory_bytes, 0);
  EXPECT_EQ(device.launch_ns, 0);
  EXPECT_EQ(device.efficiency, Efficiency{});
}

TEST(DeviceSpec, RefusalsNameLineAndKey) {
  const std::string least = kLeast;
  EXPECT_THAT(device_refusal("name = \"x\"\nbandwidth = \"1GB/s\"\n"),
              HasSubstr("'flops' is missing"));
  EXPECT_THAT(
      device_refusal(least + "memori = 3\n"),
      AllOf(StartsWith("d.toml:4:"), HasSubstr("memori"), HasSubstr("half_speed_products")));
  EXPECT_THAT(device_refusal("name = \"x\"\nflops = \"1TB/s\"\nbandwidth = \"1GB/s\"\n"),
              AllOf(StartsWith("d.toml:2:"), HasSubstr("'1TB/s'")));
  EXPECT_THAT(device_refusal("name = \"x\"\nflops = 0\nbandwidth = \"1GB/s\"\n"),
              StartsWith("d.toml:2:"));
  EXPECT_THAT(device_refusal("name = \"x\"\nflops = -5\nbandwidth = \"1GB/s\"\n"),
              StartsWith("d.toml:2:"));
  EXPECT_THAT(device_refusal("name = \"x\"\nflops = 1.5\nbandwidth = \"1GB/s\"\n"),
              HasSubstr("flops"));
  EXPECT_THAT(device_refusal("name = \"\"\nflops = 1\nbandwidth = 1\n"), HasSubstr("name of 1 to"));
  EXPECT_THAT(device_refusal(least + "[efficiency]\nmemory = 0\n"), HasSubstr("efficiency.memory"));
  EXPECT_THAT(device_refusal(least + "[efficiency]\nmatmul = 1.01\n"),
              HasSubstr("efficiency.matmul"));
  EXPECT_THAT(device_refusal(least + "[efficiency]\nconvolution = nan\n"),
              HasSubstr("efficiency.convolution"));
  EXPECT_THAT(device_refusal(least + "[efficiency]\nspeed = 1\n"),
              AllOf(StartsWith("d.toml:5:"), HasSubstr("efficiency: unknown key 'speed'")));
  EXPECT_THAT(device_refusal(least + "efficiency = 3\n"), HasSubstr("[efficiency]"));
  EXPECT_THAT(device_refusal(least + "half_speed_products = -1\n"),
              HasSubstr("half_speed_products"));
  EXPECT_THAT(device_refusal(least + "winograd = \"yes\"\n"), HasSubstr("true or false"));
  EXPECT_THAT(device_refusal("name = \n"), HasSubstr("not valid TOML"));
  EXPECT_THAT(device_refusal(std::string(20'000, 'x')), HasSubstr("at most"));
  EXPECT_THAT(device_refusal("a = " + std::string(5'000, '[')), HasSubstr("brackets"));
}

RC_GTEST_PROP(DeviceSpec, TomlReadsBackAsItWas, ()) {
  DeviceSpec device;
  device.name = *rc::gen::nonEmpty(rc::gen::container<std::string>(rc::gen::inRange<char>(1, 127)));
  if (device.name.size() > 100) device.name.resize(100);
  device.flops_per_s = *rc::gen::inRange<int64_t>(1, int64_t{1} << 62);
  device.bandwidth_bytes_per_s = *rc::gen::inRange<int64_t>(1, int64_t{1} << 62);
  device.memory_bytes = *rc::gen::inRange<int64_t>(0, int64_t{1} << 62);
  device.launch_ns = *rc::gen::inRange<int64_t>(0, 1'000'000'000);
  const auto share = [] { return *rc::gen::inRange(1, 1001) / 1000.0; };
  device.efficiency = {
      .memory = share(), .normalization = share(), .matmul = share(), .convolution = share()};
  device.half_speed_products = *rc::gen::inRange<int64_t>(0, (int64_t{1} << 20) + 1);
  device.winograd = *rc::gen::arbitrary<bool>();
  RC_ASSERT(parse_device(to_toml(device), "again") == device);
}

TEST(DeviceSpec, DamagedFilesAreReadOrRefused) {
  for (const std::string& text : tests::mutants(to_toml(find_device("v100")), 7, 500)) {
    try {
      validate(parse_device(text, "damaged"));
    } catch (const ParseError& error) {
      EXPECT_THAT(error.what(), StartsWith("damaged"));
    }
  }
}

TEST(DeviceSpec, ShippedFilesAreReadAndNameThemselves) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(PENSTOCK_EXAMPLE_DEVICES)) {
    SCOPED_TRACE(entry.path().string());
    EXPECT_EQ(load_device(entry.path()).name, entry.path().stem().string());
    ++files;
  }
  EXPECT_GT(files, 0);
}

}  // namespace
}  // namespace penstock::profile
