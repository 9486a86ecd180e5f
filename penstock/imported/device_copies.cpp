#include "penstock/imported/device_copies.h"

#include <tuple>
#include <utility>

namespace penstock::imported {

bool DeviceCopies::before(at::Device one, at::Device other) {
  return std::tuple(one.type(), one.index()) < std::tuple(other.type(), other.index());
}

const model::Tensors& DeviceCopies::on_host() const {
  std::call_once(read_, [this] {
    model::Tensors read;  // all or none, where a file cannot be read
    for (const auto& constant : stored_) read.push_back(constant->tensor());
    tensors_ = std::move(read);
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
