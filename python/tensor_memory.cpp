#include "python/tensor_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/alignment.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <string_view>

namespace penstock::python {
namespace {

struct Functions {
  void* (*aligned)(size_t alignment, size_t bytes) = nullptr;
  void (*free)(void*) = nullptr;
};

Functions& tcmalloc() {
  static Functions functions;
  return functions;
}

void give_back(void* memory) {
  if (memory == nullptr) return;
  c10::profiledCPUMemoryReporter().Delete(memory);
  tcmalloc().free(memory);
}

class TensorMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = nullptr;
    if (bytes > 0) {
      memory = tcmalloc().aligned(c10::gAlignment, bytes);
      if (memory == nullptr) {
        c10::profiledCPUMemoryReporter().OutOfMemory(bytes);
        TORCH_CHECK(false, "not enough memory: a tensor of ", bytes, " bytes was asked for");
      }
      c10::profiledCPUMemoryReporter().New(memory, bytes);
    }
    return {memory, memory, &give_back, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

bool may_use_tcmalloc() {
  const char* choice = std::getenv("PENSTOCK_ALLOCATOR");
  return choice == nullptr || std::string_view(choice) != "system";
}

}  // namespace

bool take_tensors_from_tcmalloc() {
  if (!may_use_tcmalloc()) return false;
  // Its malloc() stays invisible to the rest of the process. It is never unloaded.
  void* library = ::dlopen("libtcmalloc_minimal.so.4", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return false;
  Functions& functions = tcmalloc();
  functions.aligned =
      reinterpret_cast<decltype(functions.aligned)>(::dlsym(library, "tc_memalign"));
  functions.free = reinterpret_cast<decltype(functions.free)>(::dlsym(library, "tc_free"));
  if (functions.aligned == nullptr || functions.free == nullptr) return false;
  static TensorMemory memory;
  c10::SetAllocator(c10::DeviceType::CPU, &memory);
  return c10::GetAllocator(c10::DeviceType::CPU) == &memory;
}

}  // namespace penstock::python
