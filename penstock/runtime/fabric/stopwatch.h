// Adds the time that a call was blocked to its Wait.
#pragma once

#include <chrono>

#include "penstock/runtime/fabric/wait.h"

namespace penstock::runtime {

/// Counts from its construction to its end.
class Stopwatch {
 public:
  explicit Stopwatch(Wait& wait) : wait_(wait), start_(std::chrono::steady_clock::now()) {}
  ~Stopwatch() {
    const auto elapsed = std::chrono::steady_clock::now() - start_;
    wait_.waited_ns += std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  Wait& wait_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace penstock::runtime
