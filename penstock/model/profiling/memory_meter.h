// Counts the bytes of tensor memory that the calling thread allocates and keeps while the meter
// exists. It replaces PyTorch's own profiler, so the two cannot be used together on one thread.
//
//   MemoryMeter meter;  Tensors out = layer.forward(...);  int64_t kept = meter.bytes();
#pragma once

#include <cstdint>
#include <memory>

namespace penstock::model::detail {

class MemoryMeter {
 public:
  MemoryMeter();
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  /// Bytes allocated so far and not freed.
  int64_t bytes() const;
  /// The most that bytes() has been.
  int64_t peak_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock::model::detail
