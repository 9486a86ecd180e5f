// The peak resident set size of this process, from the operating system.
#pragma once

#include <cstdint>

namespace penstock::train {

/// Resets the peak where the system allows it (Linux: /proc/self/clear_refs); otherwise does
/// nothing.
void reset_peak_memory();
/// Bytes; 0 where the system does not report it.
int64_t peak_memory_bytes();

}  // namespace penstock::train
