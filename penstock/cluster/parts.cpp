#include "penstock/cluster/parts.h"

#include <fmt/format.h>

#include <cmath>

#include "penstock/util/error.h"

namespace penstock::cluster::detail {

namespace {

/// Groups come from callers and files alike: the end of a range need not fit an int.
int64_t last_of(const DeviceGroup& group) { return int64_t{group.first} + group.count - 1; }

std::string range_of(const DeviceGroup& group) {
  return group.count == 1 ? fmt::format("{}", group.first)
                          : fmt::format("{}-{}", group.first, last_of(group));
}

}  // namespace

std::string name_of(const Level& level, size_t position) {
  return fmt::format("cluster level {} ('{}')", position, level.name);
}

std::string name_of(const DeviceGroup& group) {
  return fmt::format("cluster devices of workers {} ('{}')", range_of(group), group.device.name);
}

void validate_level(const Level& level, const std::string& what) {
  const auto refuse = [&](std::string_view key, std::string_view expected, int64_t found) {
    throw ConfigError(fmt::format("{}: expected a {} {}, found {}", what, key, expected, found));
  };
  if (level.count < 1) refuse("count", "of at least 1", level.count);
  if (level.bandwidth_bytes_per_s < 1)
    refuse("bandwidth", "above zero", level.bandwidth_bytes_per_s);
  if (level.latency_ns < 0) refuse("latency", "of at least 0", level.latency_ns);
  if (level.processor_ns_per_gb < 0)
    refuse("processor_time_per_gb", "of at least 0", level.processor_ns_per_gb);
  if (level.processor_ns_per_message < 0)
    refuse("processor_time_per_message", "of at least 0", level.processor_ns_per_message);
}

void validate_device(const Device& device, const std::string& what) {
  if (device.memory_bytes < 0) {
    throw ConfigError(
        fmt::format("{}: expected a memory of at least 0, found {}", what, device.memory_bytes));
  }
  if (device.host_bytes_per_s < 0) {
    throw ConfigError(
        fmt::format("{}: expected at least 0 bytes per second between it and its host, found {}",
                    what, device.host_bytes_per_s));
  }
  if (!std::isfinite(device.speed) || device.speed <= 0) {
    throw ConfigError(fmt::format("{}: expected a speed above zero, found {}", what, device.speed));
  }
}

void validate_cpu_machines(const CpuMachines& machines) {
  if (machines.count < 0 || machines.count > kMaxWorkers) {
    throw ConfigError(fmt::format("cluster's CPU machines: expected a count from 0 to {}, found {}",
                                  kMaxWorkers, machines.count));
  }
  if (machines.bandwidth_bytes_per_s < (machines.count > 0 ? 1 : 0)) {
    throw ConfigError(
        fmt::format("cluster's CPU machines: expected a bandwidth above zero, found {}",
                    machines.bandwidth_bytes_per_s));
  }
}

void validate_machine(const Machine& machine) {
  const auto check = [](std::string_view what, int64_t bytes_per_s, bool may_be_absent) {
    if (bytes_per_s >= (may_be_absent ? 0 : 1)) return;
    throw ConfigError(
        fmt::format("cluster's machine: expected a {} above zero, found {}", what, bytes_per_s));
  };
  if (machine.switches < 1 || machine.switches > kMaxWorkers) {
    throw ConfigError(fmt::format("cluster's machine: expected 1 to {} switches, found {}",
                                  kMaxWorkers, machine.switches));
  }
  check("bandwidth of a device", machine.device_bytes_per_s, false);
  check("bandwidth of a switch", machine.switch_bytes_per_s, false);
  check("bandwidth across switches", machine.cross_bytes_per_s, machine.switches == 1);
  check("bandwidth of NVLink", machine.nvlink_bytes_per_s, true);
  if (machine.network_card < -1 || machine.network_card >= machine.switches) {
    throw ConfigError(fmt::format(
        "cluster's machine: expected a network card behind one of the switches 0 to {}, found {}",
        machine.switches - 1, machine.network_card));
  }
}

void validate_one_machine(const Cluster& inside, const Level& level) {
  if (!level.machine) return;
  for (const Level& inner : inside.levels) {
    if (!inner.machine) continue;
    throw ConfigError(
        fmt::format("expected one level of machines at most, found two: '{}' inside '{}'",
                    inner.name, level.name));
  }
}

void validate_machines(const Cluster& cluster) {
  int64_t devices = 1;  // of a machine
  Cluster inside;
  for (const Level& level : cluster.levels) {
    validate_one_machine(inside, level);
    inside.levels.push_back(level);
    if (static_cast<int>(inside.levels.size()) <= cluster.machine_level()) devices *= level.count;
  }
  if (!cluster.machine) return;
  validate_machine(*cluster.machine);
  if (cluster.machine_level() == 0) {
    throw ConfigError(
        "cluster's machine: no level says that its unit is one; add machine = true to the level");
  }
  if (devices % cluster.machine->switches != 0) {
    throw ConfigError(fmt::format(
        "cluster's machine: expected a number of switches that divides its {} devices, found {}",
        devices, cluster.machine->switches));
  }
}

int64_t count_with(int64_t workers, const Level& level) {
  const int64_t product = workers * level.count;  // at most 10^7 times an int
  if (product <= kMaxWorkers) return product;
  throw ConfigError(fmt::format(
      "the counts of the cluster's levels up to '{}' make {} workers, expected at most {}",
      level.name, product, kMaxWorkers));
}

void validate_group(const DeviceGroup& group, int64_t workers) {
  if (group.count < 1) {
    throw ConfigError(fmt::format(
        "cluster devices from worker {} ('{}'): expected a count of at least 1, found {}",
        group.first, group.device.name, group.count));
  }
  if (group.first < 0 || last_of(group) >= workers) {
    throw ConfigError(
        fmt::format("{}: expected workers from 0 to {}, as the levels' counts make {}",
                    name_of(group), workers - 1, workers));
  }
  validate_device(group.device, name_of(group));
}

void validate_order(const DeviceGroup& previous, const DeviceGroup& group) {
  if (group.first > last_of(previous)) return;
  const bool overlap = previous.first <= last_of(group);
  throw ConfigError(fmt::format(
      "{}: {} workers {}, expected groups in ascending order without a worker in two of them",
      name_of(group), overlap ? "overlaps the group of" : "comes after the group of",
      range_of(previous)));
}

}  // namespace penstock::cluster::detail

namespace penstock::cluster {

void validate(const Cluster& cluster) {
  if (cluster.levels.empty()) throw ConfigError("the cluster has no level, expected at least one");
  int64_t workers = 1;
  for (size_t i = 0; i < cluster.levels.size(); ++i) {
    detail::validate_level(cluster.levels[i], detail::name_of(cluster.levels[i], i));
    workers = detail::count_with(workers, cluster.levels[i]);
  }
  detail::validate_device(cluster.device, fmt::format("cluster device '{}'", cluster.device.name));
  for (size_t i = 0; i < cluster.groups.size(); ++i) {
    detail::validate_group(cluster.groups[i], workers);
    if (i > 0) detail::validate_order(cluster.groups[i - 1], cluster.groups[i]);
  }
  detail::validate_cpu_machines(cluster.cpu_machines);
  detail::validate_machines(cluster);
}

}  // namespace penstock::cluster
