#include "penstock/cluster/device_name.h"

#include <gtest/gtest.h>

#include "penstock/util/error.h"

namespace penstock::cluster {
namespace {

std::string names(const std::vector<DeviceName>& devices) {
  std::string text;
  for (const DeviceName& device : devices) text += (text.empty() ? "" : " ") + to_string(device);
  return text;
}

std::string expansion_refusal(const std::string& text, int gpus) {
  try {
    expand_devices(parse_device_names(text), gpus);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "none";
}

TEST(DeviceNames, AListNamesDevicesInItsOrder) {
  EXPECT_EQ(names(parse_device_names("cpu")), "cpu");
  EXPECT_EQ(names(parse_device_names("cuda:1,cpu,cuda:0")), "cuda:1 cpu cuda:0");
  EXPECT_EQ(names(parse_device_names("cuda")), "cuda");
}

TEST(DeviceNames, CudaStandsForEveryGpu) {
  EXPECT_EQ(names(expand_devices(parse_device_names("cuda"), 3)), "cuda:0 cuda:1 cuda:2");
  EXPECT_EQ(names(expand_devices(parse_device_names("cpu,cuda"), 2)), "cpu cuda:0 cuda:1");
}

TEST(DeviceNames, NeighboursShareADevice) {
  const auto two = parse_device_names("cuda:0,cuda:1");
  EXPECT_EQ(names(deal_devices(two, 4)), "cuda:0 cuda:0 cuda:1 cuda:1");
  EXPECT_EQ(names(deal_devices(two, 3)), "cuda:0 cuda:0 cuda:1");
  EXPECT_EQ(names(deal_devices(two, 1)), "cuda:0");
}

TEST(DeviceNames, WordsThatAreNoDeviceAreRefusedWithTheWord) {
  for (const char* text : {"", "gpu", "cuda:", "cuda:-1", "cuda:1x", "cuda:99999999999", "cpu,",
                           "cuda:0;cuda:1", "CUDA", "cpu:0"}) {
    EXPECT_THROW(parse_device_names(text), ConfigError) << text;
  }
  EXPECT_EQ(expansion_refusal("cpu,tpu", 1),
            "expected cpu, cuda, cuda:N or a list such as cuda:0,cuda:1, found 'tpu'");
  EXPECT_EQ(expansion_refusal("cuda,cuda:0", 2),
            "'cuda,cuda:0' names all GPUs (cuda) and single ones: expected either");
}

TEST(DeviceNames, GpusThatDoNotExistAreRefused) {
  EXPECT_EQ(expansion_refusal("cuda:2", 2),
            "the device cuda:2 does not exist: the GPUs are cuda:0 to cuda:1");
  EXPECT_EQ(expansion_refusal("cuda:1", 1),
            "the device cuda:1 does not exist: the only GPU is cuda:0");
  EXPECT_EQ(expansion_refusal("cuda", 0), "the device cuda does not exist: there is no GPU");
  EXPECT_EQ(expansion_refusal("cpu", 0), "none");
}

}  // namespace
}  // namespace penstock::cluster
