#include "penstock/profile/device_spec.h"

#include <fmt/format.h>

#include <algorithm>

#include "penstock/util/error.h"

namespace penstock::profile {

namespace {

constexpr int64_t kGiga = 1'000'000'000;
constexpr int64_t kMostProducts = int64_t{1} << 20;
constexpr size_t kMostNameCharacters = 100;

/// Peaks without tensor cores: the profile is in single precision.
DeviceSpec gpu(std::string name, int64_t gigaflops, int64_t gigabytes_per_s, int64_t gigabytes) {
  DeviceSpec device;
  device.name = std::move(name);
  device.flops_per_s = gigaflops * kGiga;
  device.bandwidth_bytes_per_s = gigabytes_per_s * kGiga;
  device.memory_bytes = gigabytes * kGiga;
  device.launch_ns = 6'000;
  return device;
}

/// One core of a server with 256-bit vectors at 3 GHz: two multiply-adds of eight numbers per
/// cycle.
DeviceSpec cpu_core() {
  DeviceSpec device;
  device.name = "cpu-core";
  device.flops_per_s = 96 * kGiga;
  device.bandwidth_bytes_per_s = 12 * kGiga;
  device.launch_ns = 2'000;
  device.half_speed_products = 32;
  device.winograd = false;
  return device;
}

void refuse_outside(const DeviceSpec& device, const char* key, double share) {
  if (share > 0 && share <= 1) return;
  throw ConfigError(fmt::format("device '{}': expected {} above 0 and at most 1, found {}",
                                device.name, key, share));
}

void refuse_below(const DeviceSpec& device, const char* key, int64_t value, int64_t least) {
  if (value >= least) return;
  throw ConfigError(fmt::format("device '{}': expected {} of at least {}, found {}", device.name,
                                key, least, value));
}

}  // namespace

const std::vector<DeviceSpec>& builtin_devices() {
  static const std::vector<DeviceSpec> devices = {
      gpu("v100", 15'700, 900, 16),
      gpu("a100", 19'500, 1'555, 40),
      gpu("h100", 66'900, 3'350, 80),
      gpu("t4", 8'100, 320, 16),
      gpu("p100", 10'600, 732, 16),
      gpu("titan-x", 10'970, 480, 12),
      cpu_core(),
  };
  return devices;
}

DeviceSpec find_device(const std::string& name) {
  if (name.find('/') != std::string::npos || name.ends_with(".toml")) return load_device(name);
  std::string names;
  for (const DeviceSpec& device : builtin_devices()) {
    if (device.name == name) return device;
    names += device.name + ", ";
  }
  throw ConfigError(
      fmt::format("unknown device '{}', expected one of {}or a file that ends in .toml",
                  name.substr(0, 60), names));
}

void validate(const DeviceSpec& device) {
  if (device.name.empty() || device.name.size() > kMostNameCharacters) {
    throw ConfigError(fmt::format("device: expected a name of 1 to {} characters, found {}",
                                  kMostNameCharacters, device.name.size()));
  }
  refuse_below(device, "flops", device.flops_per_s, 1);
  refuse_below(device, "bandwidth", device.bandwidth_bytes_per_s, 1);
  refuse_below(device, "memory", device.memory_bytes, 0);
  refuse_below(device, "launch", device.launch_ns, 0);
  refuse_outside(device, "efficiency.memory", device.efficiency.memory);
  refuse_outside(device, "efficiency.normalization", device.efficiency.normalization);
  refuse_outside(device, "efficiency.matmul", device.efficiency.matmul);
  refuse_outside(device, "efficiency.convolution", device.efficiency.convolution);
  if (device.half_speed_products < 0 || device.half_speed_products > kMostProducts) {
    throw ConfigError(
        fmt::format("device '{}': expected half_speed_products between 0 and {}, found {}",
                    device.name, kMostProducts, device.half_speed_products));
  }
}

}  // namespace penstock::profile
