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

}  // namespace penstock::cluster::detail
