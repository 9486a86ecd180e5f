#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <initializer_list>

#include "penstock/profile/device_spec.h"
#include "penstock/util/error.h"
#include "penstock/util/files.h"
#include "penstock/util/toml_text.h"
#include "penstock/util/units.h"

namespace penstock::profile {

namespace {

// A device file has a dozen keys. The parser builds and destroys nested tables recursively, one call per dot or bracket, so what could
// nest is bounded together with the size.
constexpr size_t kMaxFileBytes = 16 * 1024;
constexpr int64_t kMaxNestingMarks = 500;

void check_text_bounds(std::string_view text, std::string_view place) {
  if (text.size() > kMaxFileBytes) {
    throw ParseError(place, 0, fmt::format("expected a device file of at most {} bytes, found {}", kMaxFileBytes, text.size()));
  }
  const auto marks = std::count_if(text.begin(), text.end(), [](char c) { return c == '.' || c == '[' || c == '{'; });
  if (marks > kMaxNestingMarks) {
    throw ParseError(place, 0, fmt::format("expected at most {} dots and brackets in a device file, found {}", kMaxNestingMarks, marks));
  }
}

/// One table of the file, with the messages that every key needs. `prefix` is "" or "efficiency.".
class Table {
 public:
  Table(const toml::table& table, std::string_view place, std::string_view prefix) : table_(table), place_(place), prefix_(prefix) {}

  void allow_only(std::initializer_list<std::string_view> keys) const {
    for (const auto& [key, node] : table_) {
      if (std::find(keys.begin(), keys.end(), key.str()) != keys.end()) continue;
      throw ParseError(place_, line_of(node),
                       fmt::format("unknown key '{}{}', expected one of: {}", prefix_, key.str().substr(0, 60), fmt::join(keys, ", ")));
    }
  }
  void require(std::string_view key) const {
    if (!table_.contains(key)) throw ParseError(place_, line_of(table_), fmt::format("the key '{}' is missing", key));
  }

  /// Text with a unit, or a plain integer in base units.
  template <class Parse>
  void read_quantity(std::string_view key, int64_t& result, Parse parse) const {
    const toml::node* node = table_.get(key);
    if (node == nullptr) return;
    std::string text;
    if (const auto* number = node->as_integer()) {
      text = std::to_string(number->get());
    } else if (const auto* quoted = node->as_string()) {
      text = quoted->get();
    } else {
      fail(key, *node, "expected text with a unit or an integer");
    }
    try {
      result = parse(text);
    } catch (const ConfigError& error) {
      fail(key, *node, error.what());
    }
  }
  void read(std::string_view key, std::string& result) const { read_as<std::string>(key, result, "a string"); }
  void read(std::string_view key, bool& result) const { read_as<bool>(key, result, "true or false"); }
  void read(std::string_view key, int64_t& result) const { read_as<int64_t>(key, result, "an integer"); }
  void read(std::string_view key, double& result) const {
    const toml::node* node = table_.get(key);
    if (node == nullptr) return;
    if (!node->is_number()) fail(key, *node, "expected a number");
    result = *node->value<double>();
  }

 private:
  static int64_t line_of(const toml::node& node) { return static_cast<int64_t>(node.source().begin.line); }

  [[noreturn]] void fail(std::string_view key, const toml::node& node, std::string_view message) const {
    throw ParseError(place_, line_of(node), fmt::format("{}{}: {}", prefix_, key, message));
  }

  template <class T>
  void read_as(std::string_view key, T& result, std::string_view expected) const {
    const toml::node* node = table_.get(key);
    if (node == nullptr) return;
    const auto* value = node->as<T>();
    if (value == nullptr) fail(key, *node, fmt::format("expected {}", expected));
    result = value->get();
  }

  const toml::table& table_;
  std::string_view place_;
  std::string_view prefix_;
};

Efficiency read_efficiency(const toml::node& node, std::string_view place) {
  if (!node.is_table()) throw ParseError(place, node.source().begin.line, "expected [efficiency] to be a table");
  const Table table(*node.as_table(), place, "efficiency.");
  table.allow_only({"memory", "normalization", "matmul", "convolution"});
  Efficiency efficiency;
  table.read("memory", efficiency.memory);
  table.read("normalization", efficiency.normalization);
  table.read("matmul", efficiency.matmul);
  table.read("convolution", efficiency.convolution);
  return efficiency;
}

DeviceSpec read_device(const toml::table& root, std::string_view place) {
  const Table table(root, place, "");
  table.allow_only({"name", "flops", "bandwidth", "memory", "launch", "half_speed_products", "winograd", "efficiency"});
  for (const char* key : {"name", "flops", "bandwidth"}) table.require(key);
  DeviceSpec device;
  table.read("name", device.name);
  table.read_quantity("flops", device.flops_per_s, parse_flops);
  table.read_quantity("bandwidth", device.bandwidth_bytes_per_s, parse_bandwidth);
  table.read_quantity("memory", device.memory_bytes, parse_bytes);
  table.read_quantity("launch", device.launch_ns, parse_duration);
  table.read("half_speed_products", device.half_speed_products);
  table.read("winograd", device.winograd);
  if (const toml::node* node = root.get("efficiency")) device.efficiency = read_efficiency(*node, place);
  return device;
}

/// A float in TOML has a point or an exponent.
std::string share(double value) {
  const std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

}  // namespace

DeviceSpec parse_device(std::string_view text, std::string_view place) {
  check_text_bounds(text, place);
  try {
    const toml::table root = toml::parse(text, place);
    const DeviceSpec device = read_device(root, place);
    validate(device);
    return device;
  } catch (const toml::parse_error& error) {
    throw ParseError(place, error.source().begin.line, fmt::format("not valid TOML: {}", error.description().substr(0, 300)));
  } catch (const ConfigError& error) {
    throw ParseError(place, 0, error.what());
  }
}

DeviceSpec load_device(const std::filesystem::path& path) { return parse_device(read_file(path, kMaxFileBytes), path.string()); }

std::string to_toml(const DeviceSpec& device) {
  std::string text = fmt::format("name = {}\nflops = {}\nbandwidth = {}\n", toml_string(device.name),
                                 toml_quantity(device.flops_per_s, {"FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s"}),
                                 toml_quantity(device.bandwidth_bytes_per_s, {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"}));
  if (device.memory_bytes > 0)
    text += fmt::format("memory = {}\n", toml_quantity(device.memory_bytes, {"B", "kB", "MB", "GB", "TB", "PB"}));
  text += fmt::format("launch = {}\nhalf_speed_products = {}\nwinograd = {}\n\n", toml_quantity(device.launch_ns, {"ns", "us", "ms", "s"}),
                      device.half_speed_products, device.winograd);
  const Efficiency& efficiency = device.efficiency;
  return text + fmt::format("[efficiency]\nmemory = {}\nnormalization = {}\nmatmul = {}\nconvolution = {}\n", share(efficiency.memory),
                            share(efficiency.normalization), share(efficiency.matmul), share(efficiency.convolution));
}

}  // namespace penstock::profile
