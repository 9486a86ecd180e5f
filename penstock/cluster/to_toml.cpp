#include <fmt/format.h>

#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>

#include "penstock/cluster/cluster.h"
#include "penstock/util/files/toml_text.h"

namespace penstock::cluster {

namespace {

std::string bandwidth_text(int64_t bytes_per_s) {
  return toml_quantity(bytes_per_s, {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"});
}

std::string memory_text(int64_t bytes) {
  return toml_quantity(bytes, {"B", "kB", "MB", "GB", "TB", "PB"});
}

std::string host_bandwidth_text(const Device& device) {
  if (device.host_bytes_per_s == 0) return {};
  return fmt::format("host_bandwidth = {}\n", bandwidth_text(device.host_bytes_per_s));
}

std::string group_text(const DeviceGroup& group) {
  std::string text = fmt::format("\n[[devices]]\nworkers = \"{}", group.first);
  if (group.count > 1) text += fmt::format("-{}", group.first + group.count - 1);
  // Unlike that of [device], a missing memory would not mean "no limit".
  text += fmt::format("\"\nname = {}\nmemory = {}\nspeed = {}\n", toml_string(group.device.name),
                      memory_text(group.device.memory_bytes), group.device.speed);
  return text + host_bandwidth_text(group.device);
}

std::string machine_text(const Machine& machine) {
  std::string text = fmt::format("\n[machine]\nswitches = {}\n", machine.switches);
  const auto add = [&](std::string_view key, int64_t bytes_per_s) {
    if (bytes_per_s > 0) text += fmt::format("{} = {}\n", key, bandwidth_text(bytes_per_s));
  };
  add("device_bandwidth", machine.device_bytes_per_s);
  add("switch_bandwidth", machine.switch_bytes_per_s);
  add("cross_bandwidth", machine.cross_bytes_per_s);
  add("nvlink", machine.nvlink_bytes_per_s);
  if (machine.network_card >= 0) text += fmt::format("network_card = {}\n", machine.network_card);
  return text;
}

}  // namespace

std::string to_toml(const Cluster& cluster) {
  std::string text;
  for (const Level& level : cluster.levels) {
    text += fmt::format("[[level]]\nname = {}\ncount = {}\nbandwidth = {}\nlatency = {}\n",
                        toml_string(level.name), level.count,
                        bandwidth_text(level.bandwidth_bytes_per_s),
                        toml_quantity(level.latency_ns, {"ns", "us", "ms", "s"}));
    if (level.by_reference) text += "by_reference = true\n";
    if (level.sums_wait) text += "sums_wait = true\n";
    for (const auto& [key, ns] : {std::pair("processor_time_per_gb", level.processor_ns_per_gb),
                                  {"processor_time_per_message", level.processor_ns_per_message}}) {
      if (ns > 0) text += fmt::format("{} = {}\n", key, toml_quantity(ns, {"ns", "us", "ms", "s"}));
    }
    if (level.machine) text += "machine = true\n";
    text += '\n';
  }
  text += fmt::format("[device]\nname = {}\n", toml_string(cluster.device.name));
  if (cluster.device.memory_bytes > 0)
    text += fmt::format("memory = {}\n", memory_text(cluster.device.memory_bytes));
  text += fmt::format("speed = {}\n", cluster.device.speed);
  text += host_bandwidth_text(cluster.device);
  for (const DeviceGroup& group : cluster.groups) text += group_text(group);
  const CpuMachines& machines = cluster.cpu_machines;
  if (machines != CpuMachines{}) {
    text += fmt::format("\n[cpu_machines]\ncount = {}\nbandwidth = {}\n", machines.count,
                        bandwidth_text(machines.bandwidth_bytes_per_s));
  }
  if (cluster.machine) text += machine_text(*cluster.machine);
  return text;
}

}  // namespace penstock::cluster
