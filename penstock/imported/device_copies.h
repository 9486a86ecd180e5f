// Tensors that never change, on every device that asks for them. Internal to imported.
//
//   const DeviceCopies constants({at::arange(8)});
//   const model::Tensors& there = constants.on(at::Device(at::kCUDA, 1));
#pragma once

#include <c10/core/Device.h>

#include <map>
#include <mutex>

#include "penstock/model/layer.h"

namespace penstock::imported {

/// Thread-safe.
class DeviceCopies {
 public:
  /// The tensors are on the CPU.
  explicit DeviceCopies(model::Tensors tensors) : tensors_(std::move(tensors)) {}

  /// In the same order. Copied the first time that a device asks; blocks until all of it is there,
  /// so that every stream of the device may read it. Kept as long as this object.
  const model::Tensors& on(at::Device device) const;

 private:
  model::Tensors tensors_;
  mutable std::mutex mutex_;
  mutable std::map<at::Device, model::Tensors, bool (*)(at::Device, at::Device)> copies_{before};

  static bool before(at::Device one, at::Device other);
};

}  // namespace penstock::imported
