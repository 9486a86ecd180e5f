// The machines: devices under any number of network levels, innermost first. Devices may differ in
// speed and memory.
//
//   // 2 levels: 4 GPUs in a server, 2 servers
//   Cluster cluster = load_cluster("two_servers.toml");
//   Cluster laptop = local_cluster(2, 10'000'000'000);    // 2 threads of this process
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::cluster {

/// One level: `count` units of the level below (devices for the first) joined by links of this
/// speed.
struct Level {
  std::string name;
  int count = 1;
  int64_t bandwidth_bytes_per_s = 1;  ///< per unit and direction
  int64_t latency_ns = 0;             ///< one way
  /// Point-to-point tensors move by reference (threads of one process): a message costs latency
  /// only; gradient synchronisation still moves bytes at `bandwidth_bytes_per_s`.
  bool by_reference = false;
  /// A unit is one machine: its workers share a NIC and the memory of a host. At most one level.
  bool machine = false;
  /// What sums of gradients take from a worker's computing: processor time for every 10^9 bytes
  /// that it sends, to move them, as many that come in, and to add. 0 where other cores do that.
  /// Each end of a message between stages is charged half as much.
  int64_t processor_ns_per_gb = 0;
  /// What a message between stages takes besides, however short: of its two ends together.
  int64_t processor_ns_per_message = 0;
  /// Gradients are added when the backward pass has ended, and workers wait for it, as threads of
  /// one process (by_reference) do anyway: between GPUs.
  bool sums_wait = false;

  bool operator==(const Level&) const = default;
};

struct Device {
  std::string name = "device";
  int64_t memory_bytes = 0;  ///< 0: not limited
  double speed = 1.0;        ///< relative to the device the profile was measured on
  /// Between its memory and that of its host, per direction; 0: not known, or they are the same.
  int64_t host_bytes_per_s = 0;

  bool operator==(const Device&) const = default;
};

/// Workers [first, first + count) whose device is not the cluster's common one.
struct DeviceGroup {
  int first = 0;
  int count = 1;
  Device device;

  bool operator==(const DeviceGroup&) const = default;
};

/// Machines without accelerators, joined at the outermost level, that can run summation services or
/// parameter servers.
struct CpuMachines {
  int count = 0;
  int64_t bandwidth_bytes_per_s = 0;  ///< of one machine's NIC, per direction

  bool operator==(const CpuMachines&) const = default;
};

/// The inside of a machine: devices behind PCIe switches, the same number behind each, and the
/// switches at the host's memory. Bandwidths are per link and direction.
struct Machine {
  int switches = 1;
  int64_t device_bytes_per_s = 1;  ///< of a device to its switch
  int64_t switch_bytes_per_s = 1;  ///< of a switch to the host's memory
  int64_t cross_bytes_per_s = 0;   ///< of devices behind different switches; 0 with one switch
  int64_t nvlink_bytes_per_s = 0;  ///< of a device to the other devices; 0: there is none
  int network_card = -1;  ///< the switch that the NIC is behind; -1: it has lanes of its own

  bool operator==(const Machine&) const = default;
};

struct Cluster {
  std::vector<Level> levels;             ///< innermost first, at least one
  Device device = {};                    ///< of every worker that no group names
  std::vector<DeviceGroup> groups = {};  ///< ascending, disjoint
  CpuMachines cpu_machines = {};
  std::optional<Machine> machine = {};  ///< of every machine; nothing: only its levels are known

  /// Product of the counts.
  int num_workers() const;
  /// `worker` from 0. O(log groups).
  const Device& device_of(int worker) const;
  /// Whether all workers have the same speed, memory and way to their host, whatever the names of
  /// their devices.
  bool uniform() const;
  /// The level a unit of which is one machine, from 1: the one that says so; if none does, the
  /// innermost of several, and 0, each worker alone, where there is only one.
  int machine_level() const;
  bool operator==(const Cluster&) const = default;
};

/// `workers` threads of this process; `copy_bandwidth_bytes_per_s` is how fast gradients are summed
/// in shared memory.
Cluster local_cluster(int workers, int64_t copy_bandwidth_bytes_per_s);

/// Throws ConfigError for: no level, a count below 1, more than 10,000,000 workers, a bandwidth or
/// speed that is not positive, negative latency or memory, device groups that overlap, are out of
/// order or name workers that do not exist, CPU machines without bandwidth, machines at two levels,
/// a description of machines that does not fit the level of theirs.
void validate(const Cluster& cluster);

/// Reads the TOML form (docs/formats.md). Device groups may come in any order. The result is
/// valid. Throws ParseError(place, line, ...) with what was found and expected; unknown keys are
/// refused.
Cluster parse_cluster(std::string_view text, std::string_view place);
/// Throws ConfigError if the file cannot be read, ParseError as parse_cluster.
Cluster load_cluster(const std::filesystem::path& path);
/// Parses back to the same cluster, if that is valid and its names are UTF-8.
std::string to_toml(const Cluster& cluster);

}  // namespace penstock::cluster
