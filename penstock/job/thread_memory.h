// Whether the threads of a run can multiply matrices under the limits of this process. OpenBLAS
// makes a buffer for every thread that is inside a product at the same time; when there is no
// address space for it, it asks again for ever. So the buffers are made before the run.
#pragma once

#include <cstdint>

namespace penstock::job {

/// Checks that this many threads can run at a time, before they are started; those of earlier calls
/// count. Throws RuntimeError when a limit (ulimit -v, ulimit -d) leaves too little memory for
/// them; says how much they need. Not thread-safe.
void require_memory_for_threads(int64_t threads);

}  // namespace penstock::job
