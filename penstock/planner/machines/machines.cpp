#include "penstock/planner/machines/machines.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "penstock/util/check.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/files/toml_table.h"
#include "penstock/util/text/units.h"

namespace penstock::planner {

namespace {

namespace fs = std::filesystem;

constexpr TomlBounds kBounds = {
    .what = "a list of machines", .most_bytes = size_t{64} * 1024, .most_nesting = 2'000};
constexpr int64_t kMostDevices = 10'000'000;

/// A file is beside the list.
profile::DeviceSpec device_named(const std::string& name, const fs::path& place) {
  const bool is_file = name.find('/') != std::string::npos || name.ends_with(".toml");
  return profile::find_device(is_file ? (place.parent_path() / name).string() : name);
}

MachineKind read_kind(const toml::table& table, const fs::path& place, size_t position,
                      int64_t& devices) {
  const std::string file = place.string();
  const TomlTable reader(table, file, fmt::format("machine[{}]", position));
  reader.allow_only({"name", "count", "device", "devices", "memory", "bandwidth", "latency"});
  reader.require("device");
  MachineKind kind;
  std::string device;
  reader.read("device", device);
  reader.check("device", [&] { kind.device = device_named(device, place); });
  kind.name = kind.device.name;
  kind.memory_bytes = kind.device.memory_bytes;
  reader.read("name", kind.name);
  reader.read_count("count", kind.count, 1);
  reader.read_count("devices", kind.devices, 1);
  reader.read_quantity("memory", kind.memory_bytes, parse_bytes);
  if (kind.devices > 1) reader.require("bandwidth");
  reader.read_quantity("bandwidth", kind.inside_bytes_per_s, parse_bandwidth);
  reader.read_quantity("latency", kind.inside_latency_ns, parse_duration);
  reader.check("count", [&] {
    devices += int64_t{kind.count} * kind.devices;
    if (devices > kMostDevices) {
      throw ConfigError(
          fmt::format("expected at most {} devices in all, found {}", kMostDevices, devices));
    }
  });
  return kind;
}

void read_network(const toml::table& table, std::string_view place, Machines& machines) {
  const TomlTable reader(table, place, "network");
  reader.allow_only({"bandwidth", "latency"});
  reader.require("bandwidth");
  reader.read_quantity("bandwidth", machines.bandwidth_bytes_per_s, parse_bandwidth);
  reader.read_quantity("latency", machines.latency_ns, parse_duration);
}

bool have_equal_devices(const Machines& machines) {
  return std::all_of(machines.kinds.begin(), machines.kinds.end(), [&](const MachineKind& kind) {
    return kind.devices == machines.kinds.front().devices;
  });
}

std::vector<cluster::Level> levels_of(const Machines& machines) {
  const int devices = machines.kinds.front().devices;
  if (!have_equal_devices(machines)) {
    int most = 1;
    for (const MachineKind& kind : machines.kinds) most = std::max(most, kind.devices);
    return {{.name = "network",
             .count = machines.num_devices(),
             .bandwidth_bytes_per_s = std::max<int64_t>(machines.bandwidth_bytes_per_s / most, 1),
             .latency_ns = machines.latency_ns}};
  }
  const cluster::Level network{.name = "network",
                               .count = machines.num_machines(),
                               .bandwidth_bytes_per_s = machines.bandwidth_bytes_per_s,
                               .latency_ns = machines.latency_ns};
  if (devices == 1) return {network};
  cluster::Level inside{.name = "machine",
                        .count = devices,
                        .bandwidth_bytes_per_s = std::numeric_limits<int64_t>::max(),
                        .machine = true};
  for (const MachineKind& kind : machines.kinds) {
    inside.bandwidth_bytes_per_s = std::min(inside.bandwidth_bytes_per_s, kind.inside_bytes_per_s);
    inside.latency_ns = std::max(inside.latency_ns, kind.inside_latency_ns);
  }
  return {inside, network};
}

}  // namespace

int Machines::num_machines() const {
  int machines = 0;
  for (const MachineKind& kind : kinds) machines += kind.count;
  return machines;
}

int Machines::num_devices() const {
  int devices = 0;
  for (const MachineKind& kind : kinds) devices += kind.count * kind.devices;
  return devices;
}

Machines parse_machines(std::string_view text, const fs::path& place) {
  const std::string file = place.string();
  const toml::table root = parse_toml(text, file, kBounds);
  TomlTable(root, file, "").allow_only({"network", "machine"});
  Machines machines;
  int64_t devices = 0;
  for (const toml::table* table : toml_tables_of(root, "machine", file))
    machines.kinds.push_back(read_kind(*table, place, machines.kinds.size(), devices));
  if (machines.kinds.empty())
    throw ParseError(file, 1, "expected at least one [[machine]], found none");
  if (const toml::table* network = toml_table_of(root, "network", file)) {
    read_network(*network, file, machines);
  } else if (machines.num_machines() > 1) {
    throw ParseError(file, 1, "expected a [network] between several machines, found none");
  } else {
    machines.bandwidth_bytes_per_s = 1;  // joins nothing
  }
  return machines;
}

Machines load_machines(const fs::path& path) {
  return parse_machines(read_file(path, kBounds.most_bytes), path);
}

cluster::Cluster cluster_of(const Machines& machines, const std::vector<double>& speeds) {
  if (speeds.size() != machines.kinds.size()) {
    throw ConfigError(fmt::format("expected one speed for each of {} kinds of machines, found {}",
                                  machines.kinds.size(), speeds.size()));
  }
  cluster::Cluster result;
  result.levels = levels_of(machines);
  int first = 0;
  for (size_t k = 0; k < machines.kinds.size(); ++k) {
    const MachineKind& kind = machines.kinds[k];
    const cluster::Device device{
        .name = kind.name, .memory_bytes = kind.memory_bytes, .speed = speeds[k]};
    const int count = kind.count * kind.devices;
    if (k == 0) {
      result.device = device;
    } else {
      result.groups.push_back({.first = first, .count = count, .device = device});
    }
    first += count;
  }
  cluster::validate(result);
  return result;
}

size_t kind_of_worker(const Machines& machines, int worker) {
  for (size_t k = 0; k < machines.kinds.size(); ++k) {
    worker -= machines.kinds[k].count * machines.kinds[k].devices;
    if (worker < 0) return k;
  }
  PENSTOCK_CHECK(false, worker);
  return 0;
}

}  // namespace penstock::planner
