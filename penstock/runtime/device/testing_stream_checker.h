// Emulated GPUs that watch the order of work: a detector of races between streams. Their tensors
// are in the host's memory and their work is done at once, but the checker notes which stream each
// operation was given to, and what that stream knows to be done: its own work, that before the
// events that it waits for, and what the host has waited for. Reading what another stream has
// written, or writing to what it has read, without knowing that is a violation: on a GPU the result
// would depend on timing.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "penstock/model/device/testing_emulated.h"

namespace penstock::runtime::testing {

/// One at a time in a process.
class CheckedDevices final : public model::EmulatedDevices {
 public:
  /// `ignores_waits`: what streams are told to wait for is forgotten, to see that it is noticed.
  explicit CheckedDevices(int count, bool ignores_waits = false);
  ~CheckedDevices() override;

  std::shared_ptr<model::DeviceStream> stream(at::Device device) override;

  /// One line each; a few.
  std::vector<std::string> violations() const;
  /// Operations that were given to streams of GPUs.
  int64_t operations() const;

 private:
  uint64_t handle_;
};

}  // namespace penstock::runtime::testing
