// Tensors that never change, on every device that asks for them. Internal to imported.
//
//   const DeviceCopies constants(stored);
//   const model::Tensors& there = constants.on(at::Device(at::kCUDA, 1));
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
  /// In the same order. Read the first time that anybody asks, and copied the first time that a
  /// device asks; blocks until all of it is there, so that every stream of the device may read it.
  /// Kept as long as this object.
  const model::Tensors& on(at::Device device) const;

 private:
  const model::Tensors& on_host() const;

  Stored stored_;
  mutable std::once_flag read_;
  mutable model::Tensors tensors_;
  mutable std::mutex mutex_;
  mutable std::map<at::Device, model::Tensors, bool (*)(at::Device, at::Device)> copies_{before};

  static bool before(at::Device one, at::Device other);
};

}  // namespace penstock::imported
