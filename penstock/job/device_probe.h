// What GPUs of this machine compute and what joins them, as a cluster file: a worker on each.
//
//   const DeviceProbe found = probe_devices(model::installed_devices(), {at::Device(at::kCUDA, 0)},
//                                           {.message_bytes = 4 << 20, .seconds = 5});
//   std::cout << to_toml(found);
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/cluster/cluster.h"
#include "penstock/model/device/devices.h"
#include "penstock/probe/probe.h"

namespace penstock::job {

/// Of one GPU while the others rest.
struct DeviceFigures {
  std::string device;  ///< "cuda:0"
  std::string name;
  int64_t memory_bytes = 0;               ///< 0: not known
  probe::Measurement flops;               ///< of float32 matrix products, as libtorch computes them
  probe::Measurement short_flops;         ///< of bfloat16 ones
  probe::Measurement copied_bytes_per_s;  ///< inside its memory: read and written, counted once
  probe::Measurement to_host_bytes_per_s;    ///< into pinned memory
  probe::Measurement from_host_bytes_per_s;  ///< out of pinned memory
};

/// From one GPU to another, directly where the driver allows it, as messages of a pipeline go.
struct DeviceLink {
  size_t from = 0;  ///< in DeviceProbe::devices
  size_t to = 0;
  probe::Measurement bytes_per_s;
  /// From the end of the work that makes a message of a few bytes to the start of what reads it.
  probe::Measurement latency_ns;
};

struct DeviceProbe {
  std::vector<DeviceFigures> devices;
  std::vector<DeviceLink> links;  ///< every ordered pair; of one GPU alone: to itself
  int64_t message_bytes = 0;
};

/// Blocks for about `options.seconds`; workers and transport are not asked for. The devices are
/// different GPUs of `devices`. Throws ConfigError as probe::probe() does for sizes and seconds.
DeviceProbe probe_devices(model::Devices& devices, const std::vector<at::Device>& wanted,
                          const probe::ProbeOptions& options);

/// How workers of this process that are dealt over several GPUs are joined: by the slowest of the
/// links between these. `count` is left at 1. Blocks for about `options.seconds`; throws as
/// probe_devices().
cluster::Level measured_level(model::Devices& devices, const std::vector<at::Device>& gpus,
                              const probe::ProbeOptions& options);

/// One level, with the slowest of the links; speeds relative to the first device.
cluster::Cluster cluster_of(const DeviceProbe& probe);
/// For people, one measurement each.
std::vector<std::string> measurement_lines(const DeviceProbe& probe);
/// What makes the measurements doubtful, or what the cluster file does not say.
std::vector<std::string> notes(const DeviceProbe& probe);
std::string to_toml(const DeviceProbe& probe);
std::string to_json(const DeviceProbe& probe);

}  // namespace penstock::job
