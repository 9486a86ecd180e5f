#include "penstock/imported/device_copies.h"

#include <tuple>
#include <utility>

namespace penstock::imported {

bool DeviceCopies::before(at::Device one, at::Device other) {
  return std::tuple(one.type(), one.index()) < std::tuple(other.type(), other.index());
}

model::Tensors DeviceCopies::on(at::Device device) const {
  if (stored_.empty()) return {};
  const std::lock_guard lock(mutex_);
  if (const auto found = copies_.find(device); found != copies_.end()) return found->second;
  model::Tensors tensors;  // all or none, where a file cannot be read
  for (const auto& constant : stored_)
    tensors.push_back(constant->tensor().to(device, /*non_blocking=*/false));
  return copies_.emplace(device, std::move(tensors)).first->second;
}

void DeviceCopies::release() const {
  const std::lock_guard lock(mutex_);
  copies_.clear();
}

}  // namespace penstock::imported
