#include "penstock/runtime/device/worker_device.h"

#include <utility>

#include "penstock/util/check.h"

namespace penstock::runtime {

using model::Tensors;

WorkerDevice::WorkerDevice(model::Devices& devices, at::Device device) : devices_(&devices) {
  model::require_device(devices, device);
  host_ = devices.stream(at::kCPU);
  compute_ = device.is_cpu() ? host_ : devices.stream(device);
  incoming_ = device.is_cpu() ? host_ : devices.stream(device);
  outgoing_ = device.is_cpu() ? host_ : devices.stream(device);
}

Parcel WorkerDevice::give(Tensors tensors, bool to_host) {
  Parcel parcel{.tensors = std::move(tensors), .ready = compute_->record(), .from = device()};
  if (is_host() || !to_host) return parcel;
  outgoing_->wait(parcel.ready);
  Tensors originals = parcel.tensors;
  for (at::Tensor& tensor : parcel.tensors) {
    if (!tensor.defined()) continue;
    at::Tensor copy = host_->allocate_like(tensor, /*for_transfer=*/true);
    outgoing_->copy(copy, tensor);
    tensor = std::move(copy);
  }
  parcel.ready = outgoing_->record();
  keep_until(parcel.ready, std::move(originals));
  parcel.from = at::kCPU;
  return parcel;
}

Tensors WorkerDevice::take(Parcel parcel, bool exclusive) {
  if (parcel.from == device()) {
    compute_->wait(parcel.ready);
    if (is_host()) return std::move(parcel.tensors);
    if (!exclusive) {
      for (const at::Tensor& tensor : parcel.tensors) {
        if (tensor.defined()) compute_->uses(tensor);
      }
      return std::move(parcel.tensors);
    }
    Tensors originals = parcel.tensors;
    for (at::Tensor& tensor : parcel.tensors) {
      if (!tensor.defined()) continue;
      at::Tensor copy = compute_->allocate_like(tensor);
      compute_->copy(copy, tensor);
      tensor = std::move(copy);
    }
    keep_until(compute_->record(), std::move(originals));
    return std::move(parcel.tensors);
  }
  if (is_host()) {
    // Only those who do not know that this worker is on the host.
    compute_->wait(parcel.ready);
    for (at::Tensor& tensor : parcel.tensors) {
      if (!tensor.defined()) continue;
      at::Tensor copy = host_->allocate_like(tensor);
      host_->copy(copy, tensor);
      tensor = std::move(copy);
    }
    return std::move(parcel.tensors);
  }
  incoming_->wait(parcel.ready);
  Tensors originals = parcel.tensors;
  for (at::Tensor& tensor : parcel.tensors) {
    if (!tensor.defined()) continue;
    at::Tensor copy = incoming_->allocate_like(tensor);
    incoming_->copy(copy, tensor);
    tensor = std::move(copy);
  }
  const model::EventPtr arrived = incoming_->record();
  compute_->wait(arrived);
  keep_until(arrived, std::move(originals));
  for (const at::Tensor& tensor : parcel.tensors) {
    if (tensor.defined()) compute_->uses(tensor);
  }
  return std::move(parcel.tensors);
}

model::EventPtr WorkerDevice::take_into(const Tensors& places, const Parcel& parcel,
                                        const model::EventPtr& free) {
  PENSTOCK_CHECK(places.size() == parcel.tensors.size(), places.size(), parcel.tensors.size());
  incoming_->wait(free);
  incoming_->wait(parcel.ready);
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].numel() > 0) incoming_->copy_into(places[i], parcel.tensors[i]);
  }
  return incoming_->record();
}

Parcel WorkerDevice::bring(Tensors tensors) {
  // Not earlier: what has been freed by now may still be in use on the device.
  incoming_->wait(compute_->record());
  Parcel parcel{.tensors = {}, .ready = nullptr, .from = device()};
  for (const at::Tensor& tensor : tensors) {
    at::Tensor copy = incoming_->allocate_like(tensor);
    incoming_->copy(copy, tensor);
    compute_->uses(copy);
    parcel.tensors.push_back(std::move(copy));
  }
  parcel.ready = incoming_->record();
  keep_until(parcel.ready, std::move(tensors));
  return parcel;
}

void WorkerDevice::drop_copied() {
  while (!copied_.empty() && copied_.front().event->is_done()) copied_.pop_front();
}

void WorkerDevice::keep_until(model::EventPtr event, Tensors tensors) {
  drop_copied();
  copied_.push_back({std::move(event), std::move(tensors)});
}

at::Tensor WorkerDevice::staged(const at::Tensor& tensor) {
  if (is_host() || !tensor.defined() || host_->is_for_transfer(tensor)) return tensor;
  at::Tensor copy = host_->allocate_like(tensor, /*for_transfer=*/true);
  host_->copy(copy, tensor);
  return copy;
}

Tensors WorkerDevice::to_device(Tensors tensors) {
  if (is_host()) return tensors;
  for (at::Tensor& tensor : tensors) tensor = staged(tensor);
  return take({.tensors = std::move(tensors), .ready = nullptr, .from = at::kCPU});
}

at::Tensor WorkerDevice::to_device(const at::Tensor& tensor) {
  return std::move(to_device(Tensors{tensor}).front());
}

Tensors WorkerDevice::to_host(Tensors tensors) {
  Parcel parcel = give(std::move(tensors), /*to_host=*/true);
  host_->wait(parcel.ready);
  return std::move(parcel.tensors);
}

}  // namespace penstock::runtime
