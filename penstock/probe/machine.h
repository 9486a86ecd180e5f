// What the operating system says about this machine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock::probe {

struct Machine {
  std::string processor = "CPU";  ///< printable ASCII
  int cores = 1;                  ///< that this process may use
  /// Installed, or what the container allows if that is less; 0: unknown.
  int64_t memory_bytes = 0;

  bool operator==(const Machine&) const = default;
};

Machine this_machine();

/// The bytes that a cgroup's memory.max allows; 0 for "max" and everything that is no number.
int64_t parse_memory_limit(std::string_view text);

}  // namespace penstock::probe
