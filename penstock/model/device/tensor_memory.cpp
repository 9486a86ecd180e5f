#include "penstock/model/device/tensor_memory.h"

#include <c10/core/CPUAllocator.h>
#include <malloc.h>

#include <atomic>

#include "penstock/model/torch_compat.h"

namespace penstock::model {

namespace {

constexpr uint8_t kBeforeOthers = 200;

struct Counter {
  std::atomic<int64_t> now{0};
  std::atomic<int64_t> peak{0};

  void add(int64_t bytes) {
    const int64_t held = now.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    int64_t before = peak.load(std::memory_order_relaxed);
    while (held > before && !peak.compare_exchange_weak(before, held, std::memory_order_relaxed)) {
    }
  }
};

Counter& counter() {
  static Counter counter;
  return counter;
}

int64_t size_of(void* memory) { return static_cast<int64_t>(::malloc_usable_size(memory)); }

/// libtorch's own allocator, counted.
class CountedMemory final : public AllocatorBase {
 public:
  c10::DataPtr take(size_t bytes) const override {
    c10::DataPtr taken = own_->allocate(bytes);
    void* const memory = taken.release_context();
    counter().add(size_of(memory));
    return {memory, memory, &give_back, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }

 private:
  static void give_back(void* memory) {
    counter().add(-size_of(memory));
    c10::GetDefaultCPUAllocator()->raw_deleter()(memory);
  }

  c10::Allocator* own_ = c10::GetDefaultCPUAllocator();
};

}  // namespace

void count_tensor_memory() {
  static CountedMemory memory;
  c10::SetCPUAllocator(&memory, kBeforeOthers);
}

TensorMemory tensor_memory() {
  return {counter().now.load(std::memory_order_relaxed),
          counter().peak.load(std::memory_order_relaxed)};
}

void reset_tensor_memory_peak() {
  counter().peak.store(counter().now.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

}  // namespace penstock::model
