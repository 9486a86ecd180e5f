// Which devices --device means in this process, and which worker gets which.
//
//   const auto devices = own_devices("cuda", /*local_rank=*/1, /*local_ranks=*/2);   // cuda:1
//   options.device_of_worker = dealt(devices, workers);
#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>
#include <vector>

#include "penstock/cluster/cluster.h"
#include "penstock/cluster/device_name.h"

namespace penstock::job {

/// The devices of this process, each there. Several ranks of a machine share the GPUs that `cuda`
/// alone stands for in blocks; devices that the user names are those of every rank. Throws
/// ConfigError: a device that does not exist, a build without CUDA, a driver without a GPU.
std::vector<cluster::DeviceName> own_devices(const std::string& option, int local_rank,
                                             int local_ranks);

/// As libtorch names it; not all GPUs together.
at::Device device_of(const cluster::DeviceName& name);

/// The device of each of so many workers of this process; empty: the CPU for all.
std::vector<at::Device> dealt(const std::vector<cluster::DeviceName>& devices, int workers);

/// How so many workers of this process that are dealt over these devices are joined; nothing: on
/// one GPU, or on CPUs, as threads are. Measures it, for less than a second as a rule.
std::optional<cluster::Level> level_between(const std::vector<cluster::DeviceName>& devices,
                                            int workers);

/// The first GPU among them as libtorch names it; empty: there is none.
std::string device_to_profile(const std::vector<cluster::DeviceName>& devices);

}  // namespace penstock::job
