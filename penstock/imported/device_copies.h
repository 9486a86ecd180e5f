// Tensors that never change, on every device that asks for them. Internal to imported.
//
//   const DeviceCopies constants(stored);
//   const model::Tensors there = constants.on(at::Device(at::kCUDA, 1));
#pragma once

#include <c10/core/Device.h>

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "penstock/imported/stored_values.h"
#include "penstock/model/layer.h"

namespace penstock::imported {

/// Thread-safe.
class DeviceCopies {
 public:
  using Stored = std::vector<std::shared_ptr<const StoredConstant>>;

  explicit DeviceCopies(Stored stored) : stored_(std::move(stored)) {}

  const Stored& stored() const { return stored_; }
  /// In the same order. Read, and copied, the first time that a device asks; blocks until all of it
  /// is there, so that every stream of the device may read it. Kept until release().
  model::Tensors on(at::Device device) const;
  /// Forgets them on all devices: they are read again when they are asked for.
  void release() const;

 private:
  Stored stored_;
  mutable std::mutex mutex_;
  mutable std::map<at::Device, model::Tensors, bool (*)(at::Device, at::Device)> copies_{before};

  static bool before(at::Device one, at::Device other);
};

}  // namespace penstock::imported
