#include "penstock/model/device/devices.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "penstock/util/error.h"

namespace penstock::model {

void require_device(const Devices& devices, at::Device device) {
  if (device.is_cpu()) return;
  const int count = devices.count();
  if (count == 0)
    throw ConfigError(
        fmt::format("the device {} cannot be used: {}", device.str(), devices.obstacle()));
  if (device.index() >= 0 && device.index() < count) return;
  throw ConfigError(fmt::format("the device {} does not exist: expected cuda:0 to cuda:{}",
                                device.str(), count - 1));
}

bool is_out_of_memory(const std::exception& error) {
  return dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr;
}

}  // namespace penstock::model
