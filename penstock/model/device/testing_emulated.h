// What all emulated GPUs have in common: everything but their streams.
#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include <string>

#include "penstock/model/device/devices.h"

namespace penstock::model {

class EmulatedDevices : public Devices {
 public:
  explicit EmulatedDevices(int count) : count_(count) {}

  int count() const override { return count_; }
  std::string obstacle() const override { return count_ > 0 ? "" : "none is emulated"; }
  std::string name(at::Device) const override { return "emulated"; }
  DeviceMemory memory(at::Device) const override { return {}; }
  void reset_peak(at::Device) override {}
  at::Generator generator(at::Device, uint64_t seed) const override {
    return at::make_generator<at::CPUGeneratorImpl>(seed);
  }

 private:
  int count_;
};

/// Two of them.
inline const at::Device kFirst(at::kCUDA, 0);
inline const at::Device kSecond(at::kCUDA, 1);

}  // namespace penstock::model
