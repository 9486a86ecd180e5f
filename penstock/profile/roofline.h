// How long operations take on a device, by a roofline model: the slower of arithmetic and memory
// traffic, each at the share of its peak that operations of this kind reach, plus the launch. Pure;
// thread-safe.
//
//   int64_t ns = operations_ns(work.forward, find_device("v100"));
//
// A convolution with small windows takes the faster of two ways: directly, or through transformed
// tiles (Lavin and Gray, "Fast algorithms for convolutional neural networks", 2016), which costs
// extra passes over memory and workspace. Overlap of kernels, caches that keep a tensor between
// layers, and clock rates that fall under load are not modelled.
#pragma once

#include <cstdint>
#include <span>

#include "penstock/profile/device_spec.h"
#include "penstock/profile/operation.h"

namespace penstock::profile {

/// Transformed tensors beyond this share of the device's memory do not fit there together with a
/// model in training; such convolutions are computed directly.
inline constexpr double kWorkspaceShare = 0.25;

/// Nanoseconds, at least the launch; never below bytes / bandwidth, nor below the fewest flops /
/// peak. Saturates. The device must be valid.
int64_t operation_ns(const Operation& operation, const DeviceSpec& device);

/// The time of operations one after another: the sum. Saturates.
int64_t operations_ns(std::span<const Operation> operations, const DeviceSpec& device);

/// Bytes of gradients per second that the device adds to another tensor in its memory: two reads
/// and one write per byte.
int64_t summing_bandwidth(const DeviceSpec& device);

}  // namespace penstock::profile
