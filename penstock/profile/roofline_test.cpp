#include "penstock/profile/roofline.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>

namespace penstock::profile {
namespace {

/// Peaks of 1 flop and 1 byte per nanosecond; kernels reach the full peak.
DeviceSpec unit_device() {
  DeviceSpec device;
  device.name = "unit";
  device.flops_per_s = 1'000'000'000;
  device.bandwidth_bytes_per_s = 1'000'000'000;
  device.efficiency = {.memory = 1, .normalization = 1, .matmul = 1, .convolution = 1};
  device.half_speed_products = 0;
  return device;
}

Operation operation(OperationKind kind, int64_t flops, int64_t bytes) {
  Operation result;
  result.kind = kind;
  result.flops = flops;
  result.bytes = bytes;
  return result;
}

TEST(Roofline, TakesTheSlowerOfArithmeticAndMemoryPlusTheLaunch) {
  DeviceSpec device = unit_device();
  EXPECT_EQ(operation_ns(operation(OperationKind::Matmul, 700, 300), device), 700);
  EXPECT_EQ(operation_ns(operation(OperationKind::Matmul, 300, 700), device), 700);
  device.launch_ns = 50;
  EXPECT_EQ(operation_ns(operation(OperationKind::Elementwise, 300, 700), device), 750);
  EXPECT_EQ(operation_ns(operation(OperationKind::Elementwise, 0, 0), device), 50);
}

TEST(Roofline, EveryKindHasItsOwnEfficiency) {
  DeviceSpec device = unit_device();
  device.efficiency = {.memory = 0.5, .normalization = 0.25, .matmul = 0.8, .convolution = 0.4};
  EXPECT_EQ(operation_ns(operation(OperationKind::Elementwise, 1, 1000), device), 2000);
  EXPECT_EQ(operation_ns(operation(OperationKind::Normalization, 1, 1000), device), 4000);
  EXPECT_EQ(operation_ns(operation(OperationKind::Matmul, 1000, 1), device), 1250);
  EXPECT_EQ(operation_ns(operation(OperationKind::Convolution, 1000, 1), device), 2500);
}

TEST(Roofline, ShortSumsSlowAConvolutionDown) {
  DeviceSpec device = unit_device();
  device.half_speed_products = 16;
  Operation convolution = operation(OperationKind::Convolution, 1000, 1);
  convolution.products_per_output = 16;
  EXPECT_EQ(operation_ns(convolution, device), 2000);
  convolution.products_per_output = 48;
  EXPECT_EQ(operation_ns(convolution, device), 1334) << "4/3, rounded up";
}

TEST(Roofline, TransformedTilesAreUsedWhereTheyAreFasterAndFit) {
  DeviceSpec device = unit_device();
  device.launch_ns = 10;
  Operation convolution = operation(OperationKind::Convolution, 4000, 100);
  convolution.transformed_flops = 1000;
  convolution.transformed_bytes = 225;
  EXPECT_EQ(operation_ns(convolution, device), 1000 + 100 + 2 * 225 + 30);
  device.memory_bytes = 900;
  EXPECT_EQ(operation_ns(convolution, device), 1580) << "a quarter of the memory is enough";
  device.memory_bytes = 899;
  EXPECT_EQ(operation_ns(convolution, device), 4010);
  device.memory_bytes = 0;
  device.winograd = false;
  EXPECT_EQ(operation_ns(convolution, device), 4010);
  device.winograd = true;
  convolution.transformed_bytes = 10'000;
  EXPECT_EQ(operation_ns(convolution, device), 4010)
      << "the transforms would cost more than they save";
}

TEST(Roofline, TimesOfOperationsAreSummed) {
  DeviceSpec device = unit_device();
  device.launch_ns = 1;
  const std::vector<Operation> operations = {operation(OperationKind::Matmul, 10, 5),
                                             operation(OperationKind::Elementwise, 0, 7)};
  EXPECT_EQ(operations_ns(operations, device), 11 + 8);
  EXPECT_EQ(operations_ns({}, device), 0);
}

TEST(Roofline, EnormousCountsSaturate) {
  DeviceSpec device = unit_device();
  device.flops_per_s = 1;
  device.bandwidth_bytes_per_s = 1;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const Operation huge = operation(OperationKind::Matmul, kMost, kMost);
  EXPECT_EQ(operation_ns(huge, device), kMost);
  const std::vector<Operation> two = {huge, huge};
  EXPECT_EQ(operations_ns(two, device), kMost);
  EXPECT_GE(summing_bandwidth(device), 1);
}

TEST(Roofline, SummingReadsTwiceAndWritesOnce) {
  EXPECT_EQ(summing_bandwidth(unit_device()), 333'333'333);
}

Operation random_operation() {
  Operation result;
  result.kind = *rc::gen::element(OperationKind::Elementwise, OperationKind::Normalization,
                                  OperationKind::Matmul, OperationKind::Convolution);
  result.flops = *rc::gen::inRange<int64_t>(0, int64_t{1} << 45);
  result.bytes = *rc::gen::inRange<int64_t>(0, int64_t{1} << 40);
  if (result.kind == OperationKind::Convolution) {
    result.products_per_output = *rc::gen::inRange<int64_t>(0, 4096);
    if (*rc::gen::arbitrary<bool>()) {
      result.transformed_flops = result.flops / 4;
      result.transformed_bytes = *rc::gen::inRange<int64_t>(0, int64_t{1} << 40);
    }
  }
  return result;
}

RC_GTEST_PROP(Roofline, IsNeverBelowEitherRoof, ()) {
  const DeviceSpec& device = *rc::gen::elementOf(builtin_devices());
  const Operation operation = random_operation();
  const auto ns = static_cast<double>(operation_ns(operation, device));
  const int64_t fewest =
      operation.transformed_flops > 0 ? operation.transformed_flops : operation.flops;
  RC_ASSERT(ns >= 1e9 * static_cast<double>(operation.bytes) /
                      static_cast<double>(device.bandwidth_bytes_per_s));
  RC_ASSERT(ns >= 1e9 * static_cast<double>(fewest) / static_cast<double>(device.flops_per_s));
  RC_ASSERT(ns >= static_cast<double>(device.launch_ns));
}

RC_GTEST_PROP(Roofline, MoreWorkOnASlowerDeviceNeverTakesLess, ()) {
  DeviceSpec device = *rc::gen::elementOf(builtin_devices());
  const Operation little = random_operation();
  Operation more = little;
  more.flops += *rc::gen::inRange<int64_t>(0, int64_t{1} << 40);
  more.bytes += *rc::gen::inRange<int64_t>(0, int64_t{1} << 40);
  RC_ASSERT(operation_ns(more, device) >= operation_ns(little, device));
  DeviceSpec slower = device;
  slower.flops_per_s = device.flops_per_s / *rc::gen::inRange<int64_t>(1, 100);
  slower.bandwidth_bytes_per_s = device.bandwidth_bytes_per_s / *rc::gen::inRange<int64_t>(1, 100);
  RC_ASSERT(operation_ns(little, slower) >= operation_ns(little, device));
}

}  // namespace
}  // namespace penstock::profile
