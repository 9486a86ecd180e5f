#include "penstock/train/peak_memory.h"

#include <fstream>
#include <string>

namespace penstock::train {

void reset_peak_memory() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5";  // "reset the peak resident set size", proc(5)
}

int64_t peak_memory_bytes() {
  std::ifstream file("/proc/self/status");
  std::string key;
  while (file >> key) {
    int64_t kib = 0;
    if (key == "VmHWM:" && file >> kib) return kib * 1024;
    file.ignore(4096, '\n');
  }
  return 0;
}

}  // namespace penstock::train
