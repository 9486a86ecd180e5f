#include "penstock/util/process/freed_memory.h"

#include <malloc.h>

#include "penstock/util/process/tcmalloc.h"

namespace penstock {

void keep_freed_memory() {
#ifdef __GLIBC__
  // What is mapped alone goes back as soon as it is freed. glibc takes 32 MiB at most here.
  constexpr int kMostKept = 32 << 20;
  mallopt(M_MMAP_THRESHOLD, kMostKept);
  constexpr int kNeverTrim = -1;
  mallopt(M_TRIM_THRESHOLD, kNeverTrim);
#endif
}

void give_back_freed_memory() {
  static const auto release = tcmalloc_function<void()>("MallocExtension_ReleaseFreeMemory");
  if (release != nullptr) release();
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

}  // namespace penstock
