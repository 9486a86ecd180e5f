#include "penstock/util/process/memory_kinds.h"

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdlib>
#include <numeric>

#include "penstock/util/process/tcmalloc.h"

namespace penstock {

namespace {

constexpr std::array<std::string_view, kNumMemoryKinds> kNames = {
    "weights", "versions",  "gradients", "optimizer_state", "activations", "messages",
    "inputs",  "constants", "profile",   "working",         "other"};

/// Null: the process has another allocator.
auto heap_number() {
  static const auto function =
      tcmalloc_function<int(const char*, size_t*)>("MallocExtension_GetNumericProperty");
  return function;
}

int64_t number_of(const char* name) {
  size_t value = 0;
  return heap_number()(name, &value) != 0 ? static_cast<int64_t>(value) : 0;
}

/// Resident pages: all, and those of files; without any memory of its own.
void read_pages(HeapState& state) {
  static const int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  char text[128] = {};
  if (file < 0 || ::pread(file, text, sizeof(text) - 1, 0) <= 0) return;
  char* rest = text;
  std::strtoll(rest, &rest, 10);  // the address space
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  state.resident = std::strtoll(rest, &rest, 10) * page;
  state.shared = std::strtoll(rest, &rest, 10) * page;
}

}  // namespace

std::string_view to_string(MemoryKind kind) { return kNames.at(static_cast<size_t>(kind)); }

int64_t MemoryBytes::sum() const { return std::accumulate(of.begin(), of.end(), int64_t{0}); }

HeapState heap_state() {
  HeapState state;
  read_pages(state);
  if (heap_number() != nullptr) {
    state.in_use = number_of("generic.current_allocated_bytes");
    state.free = number_of("generic.heap_size") - state.in_use -
                 number_of("tcmalloc.pageheap_unmapped_bytes");
    return state;
  }
#ifdef __GLIBC__
  const struct mallinfo2 heap = ::mallinfo2();
  state.in_use = static_cast<int64_t>(heap.uordblks + heap.hblkhd);
  state.free = static_cast<int64_t>(heap.fordblks);
#endif
  return state;
}

}  // namespace penstock
