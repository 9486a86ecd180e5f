// Data sheets of devices, to estimate what operations cost on hardware that one does not have
// (roofline.h).
//
//   DeviceSpec v100 = find_device("v100");          // built in
//   DeviceSpec mine = find_device("mine.toml");     // docs/profiles.md
//   std::string form = to_toml(v100);               // to start from
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::profile {

/// Shares of the data sheet's peaks that good kernels reach, in (0, 1].
struct Efficiency {
  double memory = 0.8;         ///< of the bandwidth, by passes over a tensor
  double normalization = 0.7;  ///< of the bandwidth, by normalisations
  double matmul = 0.75;        ///< of the arithmetic, by large matrix products
  double convolution = 0.75;   ///< of the arithmetic, by convolutions of long sums

  bool operator==(const Efficiency&) const = default;
};

struct DeviceSpec {
  std::string name;
  int64_t flops_per_s = 0;  ///< peak, single precision
  int64_t bandwidth_bytes_per_s = 0;
  int64_t memory_bytes = 0;  ///< 0: not limited
  int64_t launch_ns = 0;     ///< added to every kernel
  Efficiency efficiency = {};
  /// Convolutions whose outputs are sums of p products reach p / (p + this) of their efficiency:
  /// gathering the windows is efficient only for long sums.
  int64_t half_speed_products = 256;
  /// Whether the convolution library multiplies in transformed tiles where that is faster
  /// (Winograd).
  bool winograd = true;

  bool operator==(const DeviceSpec&) const = default;
};

/// v100, a100, h100, t4, p100, titan-x, cpu-core. Peaks are the vendors'; efficiencies are
/// calibrated for the V100 (docs/profiles.md) and assumed for the other GPUs.
const std::vector<DeviceSpec>& builtin_devices();

/// A built-in device by its name, or a file when `name` ends in ".toml" or has a '/'. Throws
/// ConfigError naming the built-in ones, or like load_device().
DeviceSpec find_device(const std::string& name);

/// Throws ConfigError: no name, a peak below 1, negative memory or launch, an efficiency outside
/// (0, 1], products outside 0 .. 2^20.
void validate(const DeviceSpec& device);

/// Reads the TOML form. `name`, `flops` and `bandwidth` are required. Throws ParseError(place,
/// line, ...) with what was found and expected; unknown keys are refused.
DeviceSpec parse_device(std::string_view text, std::string_view place);
DeviceSpec load_device(const std::filesystem::path& path);
/// Reads back as an equal value.
std::string to_toml(const DeviceSpec& device);

}  // namespace penstock::profile
