// The rules for the parts of a cluster, one call each, so that a reader of files can name the line
// of the part.
#pragma once

#include <string>

#include "penstock/cluster/cluster.h"

namespace penstock::cluster::detail {

inline constexpr int kMaxWorkers = 10'000'000;

/// Each throws ConfigError with what was found and expected; the message begins with `what`, such
/// as "level 1 ('rack')".
void validate_level(const Level& level, const std::string& what);
void validate_device(const Device& device, const std::string& what);
void validate_cpu_machines(const CpuMachines& machines);
/// `machine` alone: its links have bandwidths, its NIC is behind one of its switches.
void validate_machine(const Machine& machine);

/// What messages call a level or a group: position, and name in quotes.
std::string name_of(const Level& level, size_t position);
std::string name_of(const DeviceGroup& group);

/// Workers under one more level, from those (at most kMaxWorkers) under one unit of it. Throws
/// ConfigError above kMaxWorkers.
int64_t count_with(int64_t workers, const Level& level);

/// `group` alone: its workers exist, its device is usable.
void validate_group(const DeviceGroup& group, int64_t workers);
/// `group` comes after `previous` and shares no worker with it.
void validate_order(const DeviceGroup& previous, const DeviceGroup& group);

/// A unit of `level`, which comes around those of the cluster, and of one of these are not both
/// machines.
void validate_one_machine(const Cluster& inside, const Level& level);
/// At most one level's unit is a machine, and the machines' description fits it. The counts of the
/// levels are valid.
void validate_machines(const Cluster& cluster);

}  // namespace penstock::cluster::detail
