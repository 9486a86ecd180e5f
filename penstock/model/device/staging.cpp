#include "penstock/model/device/staging.h"

#include <ATen/Functions.h>

#include <utility>

#include "penstock/model/device/devices.h"

namespace penstock::model {

at::Tensor empty_for_transfer(const Shape& sizes, at::ScalarType type) {
  const auto options = at::TensorOptions().dtype(type);
  return at::empty(sizes, options.pinned_memory(installed_devices().count() > 0));
}

Tensors staged_for_transfer(Tensors tensors) {
  const std::shared_ptr<DeviceStream> host = installed_devices().stream(at::kCPU);
  for (at::Tensor& tensor : tensors) {
    if (!tensor.defined() || host->is_for_transfer(tensor)) continue;
    at::Tensor copy = host->allocate_like(tensor, /*for_transfer=*/true);
    host->copy(copy, tensor);
    tensor = std::move(copy);
  }
  return tensors;
}

}  // namespace penstock::model
