// Builds with a libtorch for the CPU alone.
#include <ATen/CPUGeneratorImpl.h>

#include "penstock/model/device/devices.h"
#include "penstock/util/check.h"

namespace penstock::model {

namespace {

class NoCuda final : public Devices {
 public:
  int count() const override { return 0; }
  std::string obstacle() const override {
    return "this penstock was built with a libtorch for the CPU; build it with one for CUDA "
           "(docs/devices.md says how)";
  }
  std::string name(at::Device) const override { return "CPU"; }
  std::shared_ptr<DeviceStream> stream(at::Device device) override {
    PENSTOCK_CHECK(device.is_cpu(), device.str());
    return host_stream();
  }
  DeviceMemory memory(at::Device) const override { return {}; }
  void reset_peak(at::Device) override {}
  // What tests emulate is in the host's memory.
  at::Generator generator(at::Device, uint64_t seed) const override {
    return at::make_generator<at::CPUGeneratorImpl>(seed);
  }
};

}  // namespace

Devices& installed_devices() {
  static NoCuda devices;
  return devices;
}

}  // namespace penstock::model
