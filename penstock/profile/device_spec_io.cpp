#include <fmt/format.h>

#include "penstock/profile/device_spec.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/files/toml_table.h"
#include "penstock/util/files/toml_text.h"
#include "penstock/util/text/units.h"

namespace penstock::profile {

namespace {

// A device file has about twelve keys.
constexpr TomlBounds kBounds = {.what = "a device file", .most_bytes = 16384, .most_nesting = 500};

Efficiency read_efficiency(const toml::table& table, std::string_view place) {
  const TomlTable reader(table, place, "efficiency");
  reader.allow_only({"memory", "normalization", "matmul", "convolution"});
  Efficiency efficiency;
  reader.read("memory", efficiency.memory);
  reader.read("normalization", efficiency.normalization);
  reader.read("matmul", efficiency.matmul);
  reader.read("convolution", efficiency.convolution);
  return efficiency;
}

DeviceSpec read_device(const toml::table& root, std::string_view place) {
  const TomlTable table(root, place, "");
  table.allow_only({"name", "flops", "bandwidth", "memory", "launch", "half_speed_products",
                    "winograd", "efficiency"});
  for (const char* key : {"name", "flops", "bandwidth"}) table.require(key);
  DeviceSpec device;
  table.read("name", device.name);
  table.read_quantity("flops", device.flops_per_s, parse_flops);
  table.read_quantity("bandwidth", device.bandwidth_bytes_per_s, parse_bandwidth);
  table.read_quantity("memory", device.memory_bytes, parse_bytes);
  table.read_quantity("launch", device.launch_ns, parse_duration);
  table.read("half_speed_products", device.half_speed_products);
  table.read("winograd", device.winograd);
  if (const toml::table* efficiency = toml_table_of(root, "efficiency", place))
    device.efficiency = read_efficiency(*efficiency, place);
  return device;
}

/// A float in TOML has a point or an exponent.
std::string share(double value) {
  const std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

}  // namespace

DeviceSpec parse_device(std::string_view text, std::string_view place) {
  const toml::table root = parse_toml(text, place, kBounds);
  try {
    DeviceSpec device = read_device(root, place);
    validate(device);
    return device;
  } catch (const ConfigError& error) {
    throw ParseError(place, 0, error.what());
  }
}

DeviceSpec load_device(const std::filesystem::path& path) {
  return parse_device(read_file(path, kBounds.most_bytes), path.string());
}

std::string to_toml(const DeviceSpec& device) {
  std::string text = fmt::format(
      "name = {}\nflops = {}\nbandwidth = {}\n", toml_string(device.name),
      toml_quantity(device.flops_per_s, {"FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s"}),
      toml_quantity(device.bandwidth_bytes_per_s, {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"}));
  if (device.memory_bytes > 0)
    text += fmt::format("memory = {}\n",
                        toml_quantity(device.memory_bytes, {"B", "kB", "MB", "GB", "TB", "PB"}));
  text += fmt::format("launch = {}\nhalf_speed_products = {}\nwinograd = {}\n\n",
                      toml_quantity(device.launch_ns, {"ns", "us", "ms", "s"}),
                      device.half_speed_products, device.winograd);
  const Efficiency& efficiency = device.efficiency;
  return text +
         fmt::format(
             "[efficiency]\nmemory = {}\nnormalization = {}\nmatmul = {}\nconvolution = {}\n",
             share(efficiency.memory), share(efficiency.normalization), share(efficiency.matmul),
             share(efficiency.convolution));
}

}  // namespace penstock::profile
