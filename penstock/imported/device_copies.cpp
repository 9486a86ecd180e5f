#include "penstock/imported/device_copies.h"

#include <tuple>

namespace penstock::imported {

bool DeviceCopies::before(at::Device one, at::Device other) {
  return std::tuple(one.type(), one.index()) < std::tuple(other.type(), other.index());
}

const model::Tensors& DeviceCopies::on_host() const {
  std::call_once(read_, [this] {
    for (const auto& constant : stored_) tensors_.push_back(constant->tensor());
  });
  return tensors_;
}

const model::Tensors& DeviceCopies::on(at::Device device) const {
  const model::Tensors& tensors = on_host();
  if (device.is_cpu()) return tensors;
  const std::lock_guard lock(mutex_);
  const auto [entry, is_new] = copies_.try_emplace(device);
  if (is_new) {
    for (const at::Tensor& tensor : tensors)
      entry->second.push_back(tensor.to(device, /*non_blocking=*/false));
  }
  return entry->second;
}

}  // namespace penstock::imported
