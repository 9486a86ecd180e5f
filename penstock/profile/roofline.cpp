#include "penstock/profile/roofline.h"

#include <algorithm>

#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/numbers/rounding.h"

namespace penstock::profile {

namespace {

/// The transforms of the input and of the output, and the multiplication between them.
constexpr double kTransformedLaunches = 3;

constexpr double kNanosecondsPerSecond = 1e9;

/// The time to move `bytes` at a share of the bandwidth.
double memory_ns(double bytes, const DeviceSpec& device, double efficiency) {
  return bytes * kNanosecondsPerSecond /
         (static_cast<double>(device.bandwidth_bytes_per_s) * efficiency);
}

double arithmetic_ns(double flops, const DeviceSpec& device, double efficiency) {
  return flops * kNanosecondsPerSecond / (static_cast<double>(device.flops_per_s) * efficiency);
}

double convolution_efficiency(const Operation& operation, const DeviceSpec& device) {
  if (operation.products_per_output == 0) return device.efficiency.convolution;
  const auto products = static_cast<double>(operation.products_per_output);
  return device.efficiency.convolution * products /
         (products + static_cast<double>(device.half_speed_products));
}

bool can_transform(const Operation& operation, const DeviceSpec& device) {
  if (!device.winograd || operation.transformed_flops == 0) return false;
  return device.memory_bytes == 0 || static_cast<double>(operation.transformed_bytes) <=
                                         static_cast<double>(device.memory_bytes) * kWorkspaceShare;
}

double convolution_ns(const Operation& operation, const DeviceSpec& device) {
  const auto launch = static_cast<double>(device.launch_ns);
  const auto bytes = static_cast<double>(operation.bytes);
  const double direct = std::max(arithmetic_ns(static_cast<double>(operation.flops), device,
                                               convolution_efficiency(operation, device)),
                                 memory_ns(bytes, device, device.efficiency.memory)) +
                        launch;
  if (!can_transform(operation, device)) return direct;
  // Between the kernels the transformed tensors are written and read back; the multiplication is a
  // plain matrix product.
  const double transformed = memory_ns(bytes + 2 * static_cast<double>(operation.transformed_bytes),
                                       device, device.efficiency.memory) +
                             arithmetic_ns(static_cast<double>(operation.transformed_flops), device,
                                           device.efficiency.convolution) +
                             kTransformedLaunches * launch;
  return std::min(direct, transformed);
}

double exact_ns(const Operation& operation, const DeviceSpec& device) {
  const Efficiency& efficiency = device.efficiency;
  const auto flops = static_cast<double>(operation.flops);
  const auto bytes = static_cast<double>(operation.bytes);
  const auto roofline = [&](double of_arithmetic, double of_memory) {
    return std::max(arithmetic_ns(flops, device, of_arithmetic),
                    memory_ns(bytes, device, of_memory)) +
           static_cast<double>(device.launch_ns);
  };
  switch (operation.kind) {
    case OperationKind::Convolution:
      return convolution_ns(operation, device);
    case OperationKind::Matmul:
      return roofline(efficiency.matmul, efficiency.memory);
    case OperationKind::Normalization:
      return roofline(efficiency.matmul, efficiency.normalization);
    case OperationKind::Elementwise:
      break;
  }
  return roofline(efficiency.matmul, efficiency.memory);
}

}  // namespace

// Rounded up, so that no time is below a roof.
int64_t operation_ns(const Operation& operation, const DeviceSpec& device) {
  return rounded_up(exact_ns(operation, device));
}

int64_t operations_ns(std::span<const Operation> operations, const DeviceSpec& device) {
  int64_t total = 0;
  for (const Operation& operation : operations)
    total = saturating_add(total, operation_ns(operation, device));
  return total;
}

int64_t summing_bandwidth(const DeviceSpec& device) {
  constexpr double kPasses = 3;
  return std::max<int64_t>(1,
                           static_cast<int64_t>(static_cast<double>(device.bandwidth_bytes_per_s) *
                                                device.efficiency.memory / kPasses));
}

}  // namespace penstock::profile
