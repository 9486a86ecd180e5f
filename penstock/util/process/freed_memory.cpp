#include "penstock/util/process/freed_memory.h"

#include <malloc.h>

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

}  // namespace penstock
