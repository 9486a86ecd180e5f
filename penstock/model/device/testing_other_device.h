// A device that is not the CPU, for tests: its tensors lie in the same memory, the CPU's kernels
// compute, but a tensor on the CPU among the arguments is an error, as on a GPU.
//
//   const at::Tensor there = at::arange(8).to(other_device());
//   there + there;          // on the other device
//   there + at::arange(8);  // throws c10::Error
//
// OtherDevices: GPUs, emulated by it, whose work is done at once.
#pragma once

#include "penstock/model/device/testing_emulated.h"

namespace penstock::model {

/// Known to libtorch in every program that this file is linked into. There is one, without streams.
at::Device other_device();

/// All of them are other_device(), each with streams of its own.
class OtherDevices final : public EmulatedDevices {
 public:
  using EmulatedDevices::EmulatedDevices;
  std::shared_ptr<DeviceStream> stream(at::Device device) override;
};

}  // namespace penstock::model
