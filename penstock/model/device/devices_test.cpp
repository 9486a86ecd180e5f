#include "penstock/model/device/devices.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <string>

#include "penstock/model/device/testing_devices.h"
#include "penstock/util/error.h"

namespace penstock::model {
namespace {

const at::Device kGpu(at::kCUDA, 0);

TEST(Devices, TheHostIsAlwaysThereAndItsWorkIsDoneAtOnce) {
  const std::shared_ptr<DeviceStream> host = installed_devices().stream(at::kCPU);
  EXPECT_TRUE(host->is_host());
  const at::Tensor from = at::full({3}, 7.0);
  const at::Tensor to = host->allocate_like(from);
  host->copy(to, from);
  EXPECT_EQ(host->record(), nullptr);
  EXPECT_TRUE(at::equal(to, from));
  EXPECT_NO_THROW(require_device(installed_devices(), at::kCPU));
}

TEST(Devices, AnObstacleIsGivenExactlyWhereThereIsNoGpu) {
  EXPECT_EQ(installed_devices().count() == 0, !installed_devices().obstacle().empty());
}

TEST(Devices, AGpuThatDoesNotExistIsRefused) {
  const int count = installed_devices().count();
  const at::Device missing(at::kCUDA, static_cast<c10::DeviceIndex>(count));
  try {
    require_device(installed_devices(), missing);
    FAIL() << "cuda:" << count << " was found";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find(missing.str()), std::string::npos) << error.what();
  }
  EXPECT_THROW(installed_devices().stream(missing), Error);
}

TEST(Devices, FullMemoryOfADeviceIsToldFromOtherErrors) {
  try {
    TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory");
  } catch (const std::exception& error) {
    EXPECT_TRUE(is_out_of_memory(error));
  }
  EXPECT_FALSE(is_out_of_memory(RuntimeError("CUDA out of memory")));
}

TEST(DelayedDevices, WorkIsDoneLateAndInOrder) {
  DelayedDevices devices(1, std::chrono::milliseconds(20));
  const std::shared_ptr<DeviceStream> stream = devices.stream(kGpu);
  const at::Tensor from = at::full({3}, 7.0);
  const at::Tensor to = stream->allocate_like(from);
  stream->copy(to, from);
  const EventPtr done = stream->record();
  EXPECT_FALSE(done->is_done());
  done->wait_on_host();
  EXPECT_TRUE(at::equal(to, from));
}

}  // namespace
}  // namespace penstock::model
