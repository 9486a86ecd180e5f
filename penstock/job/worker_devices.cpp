#include "penstock/job/worker_devices.h"

#include <fmt/format.h>

#include <algorithm>

#include "penstock/model/device/devices.h"
#include "penstock/util/error.h"

#include "penstock/job/device_probe.h"

namespace penstock::job {

using cluster::DeviceName;

at::Device device_of(const DeviceName& name) {
  return name.is_cpu() ? at::Device(at::kCPU)
                       : at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(name.index));
}

std::vector<DeviceName> own_devices(const std::string& option, int local_rank, int local_ranks) {
  const std::vector<DeviceName> names = cluster::parse_device_names(option);
  if (std::all_of(names.begin(), names.end(), [](const auto& name) { return name.is_cpu(); }))
    return names;
  const model::Devices& installed = model::installed_devices();
  if (installed.count() == 0)
    throw ConfigError(fmt::format("{}: {}", option, installed.obstacle()));
  std::vector<DeviceName> devices = cluster::expand_devices(names, installed.count());
  if (names.front() != DeviceName{.kind = DeviceName::Kind::Cuda} || names.size() > 1)
    return devices;
  // What the ranks' blocks of workers are, too.
  std::vector<DeviceName> own;
  const auto count = static_cast<int>(devices.size());
  for (int d = 0; d < count; ++d) {
    if (d * local_ranks / count == local_rank) own.push_back(devices[static_cast<size_t>(d)]);
  }
  if (own.empty()) own.push_back(devices[static_cast<size_t>(local_rank * count / local_ranks)]);
  return own;
}

std::optional<cluster::Level> level_between(const std::vector<DeviceName>& devices, int workers) {
  std::vector<at::Device> gpus;
  for (const at::Device& device : dealt(devices, workers)) {
    if (!device.is_cpu() && std::find(gpus.begin(), gpus.end(), device) == gpus.end())
      gpus.push_back(device);
  }
  if (gpus.size() < 2) return std::nullopt;
  constexpr double kSeconds = 0.5;
  return measured_level(model::installed_devices(), gpus, {.seconds = kSeconds});
}

std::string device_to_profile(const std::vector<DeviceName>& devices) {
  for (const DeviceName& device : devices) {
    if (!device.is_cpu()) return device_of(device).str();
  }
  return {};
}

std::vector<at::Device> dealt(const std::vector<DeviceName>& devices, int workers) {
  if (devices.empty()) return {};
  std::vector<at::Device> result;
  for (const DeviceName& name : cluster::deal_devices(devices, workers))
    result.push_back(device_of(name));
  if (std::all_of(result.begin(), result.end(), [](const auto& device) { return device.is_cpu(); }))
    result.clear();
  return result;
}

}  // namespace penstock::job
