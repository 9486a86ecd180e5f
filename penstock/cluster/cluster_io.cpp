#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "penstock/cluster/cluster.h"
#include "penstock/cluster/parts.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/files/toml_table.h"
#include "penstock/util/text/units.h"

namespace penstock::cluster {

namespace {

// A cluster file has a handful of levels.
constexpr TomlBounds kBounds = {
    .what = "a cluster file", .most_bytes = size_t{64} * 1024, .most_nesting = 2'000};

/// One more level around `cluster`.
Level read_level(const toml::table& table, std::string_view place, const Cluster& cluster,
                 int64_t& workers) {
  const size_t position = cluster.levels.size();
  const TomlTable reader(table, place, fmt::format("level[{}]", position));
  reader.allow_only({"name", "count", "bandwidth", "latency", "by_reference", "sums_wait",
                     "processor_time_per_gb", "processor_time_per_message", "machine"});
  reader.require("count");
  reader.require("bandwidth");
  Level level;
  level.name = fmt::format("level{}", position);
  reader.read("name", level.name);
  reader.read_count("count", level.count, 1);
  reader.read_quantity("bandwidth", level.bandwidth_bytes_per_s, parse_bandwidth);
  reader.read_quantity("latency", level.latency_ns, parse_duration);
  reader.read("by_reference", level.by_reference);
  reader.read("sums_wait", level.sums_wait);
  reader.read_quantity("processor_time_per_gb", level.processor_ns_per_gb, parse_duration);
  reader.read_quantity("processor_time_per_message", level.processor_ns_per_message,
                       parse_duration);
  reader.read("machine", level.machine);
  reader.check("count", [&] { workers = detail::count_with(workers, level); });
  reader.check("machine", [&] { detail::validate_one_machine(cluster, level); });
  return level;
}

void read_device(const TomlTable& reader, Device& device) {
  reader.read("name", device.name);
  reader.read_quantity("memory", device.memory_bytes, parse_bytes);
  reader.read("speed", device.speed);
  reader.read_quantity("host_bandwidth", device.host_bytes_per_s, parse_bandwidth);
  reader.check("speed",
               [&] { detail::validate_device(device, fmt::format("device '{}'", device.name)); });
}

/// "4-7" or "3" as first worker and count; nothing when it is neither.
std::optional<std::pair<int, int>> parse_range(std::string_view text) {
  const auto number = [](std::string_view digits) -> std::optional<int> {
    int value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || digits.front() == '-')
      return std::nullopt;
    return value;
  };
  const size_t dash = text.find('-');
  const std::optional<int> first = number(text.substr(0, dash));
  const std::optional<int> last =
      dash == std::string_view::npos ? first : number(text.substr(dash + 1));
  // A range of all ints would not have an int for its length.
  if (!first || !last || *last < *first || *last - *first == INT_MAX) return std::nullopt;
  return std::pair{*first, *last - *first + 1};
}

DeviceGroup read_group(const toml::table& table, std::string_view place, size_t position,
                       const Cluster& cluster) {
  const TomlTable reader(table, place, fmt::format("devices[{}]", position));
  reader.allow_only({"workers", "name", "memory", "speed", "host_bandwidth"});
  reader.require("workers");
  DeviceGroup group;
  std::string range;
  if (table.get("workers")->is_integer()) {
    reader.read_count("workers", group.first, 0);
  } else {
    reader.read("workers", range);
    reader.check("workers", [&] {
      const auto workers = parse_range(range);
      if (!workers)
        throw ConfigError(
            fmt::format("expected a worker or a range of workers such as \"4-7\", found '{}'",
                        range.substr(0, 60)));
      std::tie(group.first, group.count) = *workers;
    });
  }
  group.device = cluster.device;
  read_device(reader, group.device);
  reader.check("workers", [&] { detail::validate_group(group, cluster.num_workers()); });
  return group;
}

/// In ascending order, whatever that of the file.
std::vector<DeviceGroup> read_groups(const toml::table& root, std::string_view place,
                                     const Cluster& cluster) {
  std::vector<std::pair<DeviceGroup, int64_t>> groups;  // with the line of each
  for (const toml::table* table : toml_tables_of(root, "devices", place)) {
    groups.emplace_back(read_group(*table, place, groups.size(), cluster),
                        table->source().begin.line);
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [](const auto& a, const auto& b) { return a.first.first < b.first.first; });
  std::vector<DeviceGroup> result;
  for (const auto& [group, line] : groups) {
    try {
      if (!result.empty()) detail::validate_order(result.back(), group);
    } catch (const ConfigError& error) {
      throw ParseError(place, line, error.what());
    }
    result.push_back(group);
  }
  return result;
}

CpuMachines read_cpu_machines(const toml::table& table, std::string_view place) {
  const TomlTable reader(table, place, "cpu_machines");
  reader.allow_only({"count", "bandwidth"});
  reader.require("count");
  CpuMachines machines;
  reader.read_count("count", machines.count, 0);
  if (machines.count > 0) reader.require("bandwidth");
  reader.read_quantity("bandwidth", machines.bandwidth_bytes_per_s, parse_bandwidth);
  reader.check("count", [&] { detail::validate_cpu_machines(machines); });
  return machines;
}

Machine read_machine(const TomlTable& reader) {
  reader.allow_only({"switches", "device_bandwidth", "switch_bandwidth", "cross_bandwidth",
                     "nvlink", "network_card"});
  for (const char* key : {"switches", "device_bandwidth", "switch_bandwidth"}) reader.require(key);
  Machine machine;
  reader.read_count("switches", machine.switches, 1);
  if (machine.switches > 1) reader.require("cross_bandwidth");
  reader.read_quantity("device_bandwidth", machine.device_bytes_per_s, parse_bandwidth);
  reader.read_quantity("switch_bandwidth", machine.switch_bytes_per_s, parse_bandwidth);
  reader.read_quantity("cross_bandwidth", machine.cross_bytes_per_s, parse_bandwidth);
  reader.read_quantity("nvlink", machine.nvlink_bytes_per_s, parse_bandwidth);
  reader.read_count("network_card", machine.network_card, 0);
  reader.check("network_card", [&] { detail::validate_machine(machine); });
  return machine;
}

Cluster read_cluster(const toml::table& root, std::string_view place) {
  TomlTable(root, place, "").allow_only({"level", "device", "devices", "cpu_machines", "machine"});
  Cluster cluster;
  int64_t workers = 1;
  for (const toml::table* table : toml_tables_of(root, "level", place)) {
    cluster.levels.push_back(read_level(*table, place, cluster, workers));
  }
  if (cluster.levels.empty()) throw ParseError(place, 0, "expected at least one [[level]] table");
  if (const toml::table* table = toml_table_of(root, "device", place)) {
    const TomlTable reader(*table, place, "device");
    reader.allow_only({"name", "memory", "speed", "host_bandwidth"});
    read_device(reader, cluster.device);
  }
  cluster.groups = read_groups(root, place, cluster);
  if (const toml::table* table = toml_table_of(root, "cpu_machines", place))
    cluster.cpu_machines = read_cpu_machines(*table, place);
  if (const toml::table* table = toml_table_of(root, "machine", place)) {
    const TomlTable reader(*table, place, "machine");
    cluster.machine = read_machine(reader);
    reader.check("switches", [&] { detail::validate_machines(cluster); });
  }
  return cluster;
}

}  // namespace

Cluster parse_cluster(std::string_view text, std::string_view place) {
  const toml::table root = parse_toml(text, place, kBounds);
  try {
    Cluster cluster = read_cluster(root, place);
    validate(cluster);
    return cluster;
  } catch (const ConfigError& error) {
    throw ParseError(place, 0, error.what());
  }
}

Cluster load_cluster(const std::filesystem::path& path) {
  return parse_cluster(read_file(path, kBounds.most_bytes), path.string());
}

}  // namespace penstock::cluster
