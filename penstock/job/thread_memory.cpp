#include "penstock/job/thread_memory.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <vector>

#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/text/units.h"

namespace penstock::job {

namespace {

/// A buffer of OpenBLAS (134 MB) and a stack (8 MB), with room for what else a thread keeps.
constexpr int64_t kPerThread = 150'000'000;
/// For the run's own tensors, at least.
constexpr int64_t kForTensors = 50'000'000;

/// Whether the process may map that much more. Nothing is touched, so nothing is used.
bool can_map(int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  munmap(memory, size);
  return true;
}

/// Has OpenBLAS make its buffers, which it keeps, while there is room. Another library has no such
/// functions, and no need of them.
void make_buffers(int64_t threads) {
  using Allocate = void* (*)(int);
  using Free = void (*)(void*);
  const auto allocate = reinterpret_cast<Allocate>(dlsym(RTLD_DEFAULT, "blas_memory_alloc"));
  const auto free = reinterpret_cast<Free>(dlsym(RTLD_DEFAULT, "blas_memory_free"));
  if (allocate == nullptr || free == nullptr) return;
  // More are seldom in use at once, and it has places for few more.
  constexpr int64_t kMost = 128;
  std::vector<void*> buffers(static_cast<size_t>(std::clamp<int64_t>(threads, 0, kMost)));
  for (void*& buffer : buffers) buffer = allocate(0);
  for (void* const buffer : buffers) {
    if (buffer != nullptr) free(buffer);
  }
}

}  // namespace

void require_memory_for_threads(int64_t threads) {
  static int64_t covered = 0;  // OpenBLAS keeps what it has made for them
  if (threads <= covered) return;
  const int64_t needed = saturating_add(saturating_mul(threads - covered, kPerThread), kForTensors);
  if (!can_map(needed)) {
    throw RuntimeError(fmt::format(
        "{} threads need at least {} of memory for their matrix products{}, more than the limits "
        "of this process leave: raise them (ulimit -v, ulimit -d), or use fewer workers",
        threads, format_bytes(needed), covered > 0 ? " besides what they have" : ""));
  }
  make_buffers(threads);
  covered = threads;
}

}  // namespace penstock::job
