// The GPUs that this process can use: those of the build's libtorch, where it is one for CUDA
// (cuda_devices.cpp, otherwise no_cuda.cpp), or what a test emulates.
//
//   Devices& devices = installed_devices();
//   if (devices.count() == 0) std::cerr << devices.obstacle() << '\n';
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "penstock/model/device/device_stream.h"

namespace penstock::model {

/// Of one GPU, in bytes, as its allocator counts them.
struct DeviceMemory {
  int64_t allocated = 0;  ///< by tensors, now
  int64_t peak = 0;       ///< of `allocated`, since reset_peak()
  int64_t reserved = 0;   ///< taken from the device, with what is kept for reuse
  int64_t total = 0;      ///< of the device
};

/// Thread-safe.
class Devices {
 public:
  virtual ~Devices() = default;

  /// How many GPUs there are; obstacle() says why there is none.
  virtual int count() const = 0;
  /// Why no GPU can be used: a build without CUDA, no driver, no GPU. Empty: one can.
  virtual std::string obstacle() const = 0;
  /// What the device's vendor calls it.
  virtual std::string name(at::Device device) const = 0;
  /// A new stream of a GPU, or host_stream().
  virtual std::shared_ptr<DeviceStream> stream(at::Device device) = 0;
  /// Of a GPU.
  virtual DeviceMemory memory(at::Device device) const = 0;
  virtual void reset_peak(at::Device device) = 0;
  /// Random numbers that are drawn on the device of the tensors that they fill.
  virtual at::Generator generator(at::Device device, uint64_t seed) const = 0;
};

/// Those of this build; one object.
Devices& installed_devices();

/// Throws ConfigError with the obstacle when there is no GPU of this number.
void require_device(const Devices& devices, at::Device device);

/// Whether the exception is that of a device whose memory is full.
bool is_out_of_memory(const std::exception& error);

}  // namespace penstock::model
