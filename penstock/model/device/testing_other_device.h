// A device that is not the CPU, for tests: its tensors lie in the same memory, the CPU's kernels
// compute, but a tensor on the CPU among the arguments is an error, as on a GPU.
//
//   const at::Tensor there = at::arange(8).to(other_device());
//   there + there;          // on the other device
//   there + at::arange(8);  // throws c10::Error
//
// OtherDevices: GPUs, emulated by it, whose work is done at once.
#pragma once

#include "penstock/model/device/devices.h"

namespace penstock::model {

/// Known to libtorch in every program that this file is linked into. There is one, without streams.
at::Device other_device();

/// All of them are other_device(), each with streams of its own.
class OtherDevices final : public Devices {
 public:
  explicit OtherDevices(int count) : count_(count) {}

  int count() const override { return count_; }
  std::string obstacle() const override { return ""; }
  std::string name(at::Device) const override { return "other"; }
  std::shared_ptr<DeviceStream> stream(at::Device device) override;
  DeviceMemory memory(at::Device) const override { return {}; }
  void reset_peak(at::Device) override {}
  at::Generator generator(at::Device, uint64_t seed) const override;

 private:
  int count_;
};

}  // namespace penstock::model
