#include "penstock/imported/device_copies.h"

#include <tuple>

namespace penstock::imported {

bool DeviceCopies::before(at::Device one, at::Device other) {
  return std::tuple(one.type(), one.index()) < std::tuple(other.type(), other.index());
}

const model::Tensors& DeviceCopies::on(at::Device device) const {
  if (device.is_cpu()) return tensors_;
  const std::lock_guard lock(mutex_);
  const auto [entry, is_new] = copies_.try_emplace(device);
  if (is_new) {
    for (const at::Tensor& tensor : tensors_)
      entry->second.push_back(tensor.to(device, /*non_blocking=*/false));
  }
  return entry->second;
}

}  // namespace penstock::imported
