#include "penstock/probe/machine.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <thread>

#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/process/processor.h"
#include "penstock/util/text/printable.h"

namespace penstock::probe {

namespace {

std::string printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < 0x20 || c > 0x7e; }, '?');
  return text.substr(0, 100);
}

/// Of a container: the root of its own cgroup hierarchy, version 2 or 1.
int64_t container_limit() {
  int64_t limit = 0;
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream file(path);
    std::string text;
    if (!std::getline(file, text)) continue;
    const int64_t found = parse_memory_limit(text);
    if (found > 0) limit = limit == 0 ? found : std::min(limit, found);
  }
  return limit;
}

}  // namespace

int64_t parse_memory_limit(std::string_view text) {
  int64_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  return error == std::errc() && end != text.data() && bytes > 0 ? bytes : 0;
}

Machine this_machine() {
  Machine machine;
  machine.processor = printable(processor_name());
  machine.cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  machine.memory_bytes =
      std::max<int64_t>(0, saturating_mul(sysconf(_SC_PHYS_PAGES), sysconf(_SC_PAGESIZE)));
  if (const int64_t limit = container_limit(); limit > 0)
    machine.memory_bytes = std::min(machine.memory_bytes, limit);
  return machine;
}

}  // namespace penstock::probe
