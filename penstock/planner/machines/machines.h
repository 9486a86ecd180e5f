// The machines that somebody has, as he would list them: how many of which, the data sheet of their
// devices, and the network between them. A cluster for the planner is made of it.
//
//   Machines machines = load_machines("hosts.toml");
//   cluster::Cluster cluster = cluster_of(machines, {1.0, 0.6});   // speeds of two kinds
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/cluster/cluster.h"
#include "penstock/profile/device_spec.h"

namespace penstock::planner {

/// Machines that are alike. Each device is a worker.
struct MachineKind {
  std::string name;
  int count = 1;
  int devices = 1;  ///< in each
  profile::DeviceSpec device = {};
  int64_t memory_bytes = 0;        ///< of a device; 0: not limited
  int64_t inside_bytes_per_s = 0;  ///< between the devices of a machine, per device and direction
  int64_t inside_latency_ns = 0;   ///< one way

  bool operator==(const MachineKind&) const = default;
};

struct Machines {
  int64_t bandwidth_bytes_per_s = 0;  ///< of the network: of a machine, per direction
  int64_t latency_ns = 0;             ///< one way
  std::vector<MachineKind> kinds;     ///< at least one

  int num_machines() const;
  int num_devices() const;
  bool operator==(const Machines&) const = default;
};

/// Reads the TOML form (docs/machines.md). A device is a built-in name or a file, relative to the
/// folder of `place`. Throws ParseError(place, line, ...) with what was found and expected; unknown
/// keys are refused. More than 10,000,000 devices are refused.
Machines parse_machines(std::string_view text, const std::filesystem::path& place);
/// Throws ConfigError if the file cannot be read, ParseError as parse_machines.
Machines load_machines(const std::filesystem::path& path);

/// Workers are numbered kind by kind, machine by machine. `speeds`: one per kind, relative to the
/// device that the profile is of. Machines with equal numbers of devices become two levels;
/// otherwise all devices share one level, each with its part of the link of the machine with most.
/// Throws ConfigError where there is not one positive speed per kind.
cluster::Cluster cluster_of(const Machines& machines, const std::vector<double>& speeds);

/// The kind that the worker of cluster_of() is of. Expects 0 <= worker < num_devices(). O(kinds).
size_t kind_of_worker(const Machines& machines, int worker);

}  // namespace penstock::planner
