// With streams that really are late: who does not wait reads -1.
#include "penstock/runtime/device/worker_device.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <future>

#include "penstock/model/device/testing_devices.h"

namespace penstock::runtime {
namespace {

using model::DelayedDevices;
using model::DelayedStream;
using model::kFirst;
using model::kSecond;
using model::Tensors;

constexpr std::chrono::milliseconds kDelay{20};

DelayedStream& late(const WorkerDevice& device) {
  return dynamic_cast<DelayedStream&>(device.compute());
}

/// A tensor that the device's stream fills with `value`, late.
at::Tensor computed(const WorkerDevice& device, double value) {
  at::Tensor tensor = at::full({4}, -1.0);
  late(device).post([tensor, value] {
    std::this_thread::sleep_for(kDelay);
    tensor.fill_(value);
  });
  return tensor;
}

/// What the device's stream reads when it comes to it.
double read(const WorkerDevice& device, const at::Tensor& tensor) {
  std::promise<double> value;
  late(device).post([&] { value.set_value(tensor[0].item<double>()); });
  return value.get_future().get();
}

bool is_used(const WorkerDevice& device, const at::Tensor& tensor) {
  const std::vector<at::Tensor> used = late(device).used();
  return std::any_of(used.begin(), used.end(),
                     [&](const at::Tensor& other) { return other.is_same(tensor); });
}

TEST(WorkerDevice, AnotherStreamOfTheSameDeviceWaitsAndCopiesNothing) {
  DelayedDevices devices(1, kDelay);
  WorkerDevice from(devices, kFirst);
  WorkerDevice to(devices, kFirst);
  const at::Tensor made = computed(from, 5);
  const Tensors taken = to.take(from.give({made}, /*to_host=*/false));
  EXPECT_TRUE(taken.front().is_same(made));
  EXPECT_TRUE(is_used(to, made));
  EXPECT_EQ(read(to, taken.front()), 5);
}

TEST(WorkerDevice, WhatMayBeWrittenToIsACopyOnTheSameDevice) {
  DelayedDevices devices(1, kDelay);
  WorkerDevice from(devices, kFirst);
  WorkerDevice to(devices, kFirst);
  const at::Tensor made = computed(from, 5);
  const Tensors taken = to.take(from.give({made}, /*to_host=*/false), /*exclusive=*/true);
  EXPECT_FALSE(taken.front().is_alias_of(made));
  EXPECT_EQ(read(to, taken.front()), 5);
}

TEST(WorkerDevice, AnotherDeviceReadsACopyThatIsMadeAfterTheWork) {
  DelayedDevices devices(2, kDelay);
  WorkerDevice from(devices, kFirst);
  WorkerDevice to(devices, kSecond);
  const at::Tensor made = computed(from, 5);
  const Tensors taken = to.take(from.give({made, at::Tensor()}, /*to_host=*/false));
  EXPECT_FALSE(taken.front().is_same(made));
  EXPECT_FALSE(taken.back().defined());
  EXPECT_TRUE(is_used(to, taken.front()));
  EXPECT_EQ(read(to, taken.front()), 5);
}

TEST(WorkerDevice, TheWorkerGoesOnWhileItsTensorsLeaveForTheHost) {
  DelayedDevices devices(1, kDelay);
  WorkerDevice from(devices, kFirst);
  WorkerDevice to(devices, at::kCPU);
  const at::Tensor made = computed(from, 5);
  const auto before = std::chrono::steady_clock::now();
  Parcel parcel = from.give({made}, /*to_host=*/true);
  EXPECT_LT(std::chrono::steady_clock::now() - before, kDelay);
  EXPECT_TRUE(parcel.from.is_cpu());
  EXPECT_EQ(to.take(std::move(parcel)).front()[0].item<double>(), 5);
}

TEST(WorkerDevice, TensorsOfTheHostArriveBeforeTheyAreRead) {
  DelayedDevices devices(1, kDelay);
  WorkerDevice host(devices, at::kCPU);
  WorkerDevice to(devices, kFirst);
  EXPECT_EQ(read(to, to.take(host.give({at::full({4}, 6.0)}, false)).front()), 6);
  at::Tensor batch = at::full({4}, 7.0);
  const at::Tensor there = to.to_device(batch);
  batch.fill_(8);  // it was staged
  EXPECT_EQ(read(to, there), 7);
}

TEST(WorkerDevice, WhatIsBeingCopiedIsNobodysAlone) {
  DelayedDevices devices(2, kDelay);
  WorkerDevice from(devices, kFirst);
  WorkerDevice to(devices, kSecond);
  const at::Tensor made = computed(from, 5);
  from.compute().synchronize();
  const auto alone = made.use_count();
  to.take(from.give({made}, /*to_host=*/false));
  EXPECT_GT(made.use_count(), alone);
  to.compute().synchronize();
  to.drop_copied();
  EXPECT_EQ(made.use_count(), alone);
}

TEST(WorkerDevice, ToHostBlocksUntilTheWorkIsDone) {
  DelayedDevices devices(1, kDelay);
  WorkerDevice device(devices, kFirst);
  EXPECT_EQ(device.to_host({computed(device, 9)}).front()[0].item<double>(), 9);
}

TEST(WorkerDevice, OnTheHostTensorsGoByReference) {
  WorkerDevice one(model::installed_devices(), at::kCPU);
  WorkerDevice other(model::installed_devices(), at::kCPU);
  const at::Tensor made = at::ones({4});
  EXPECT_TRUE(other.take(one.give({made}, /*to_host=*/true)).front().is_same(made));
  EXPECT_TRUE(one.to_device(made).is_same(made));
  EXPECT_TRUE(one.staged(made).is_same(made));
  EXPECT_TRUE(one.to_host({made}).front().is_same(made));
}

}  // namespace
}  // namespace penstock::runtime
