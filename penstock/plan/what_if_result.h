// What a plan would become if one thing about the cluster or the model were different: a value,
// made by planner/what_if.h.
#pragma once

#include <cstdint>
#include <string>

#include "penstock/plan/strategy.h"

namespace penstock::plan {

struct WhatIfResult {
  std::string change = {};  ///< for people: "one more worker", "twice the bandwidth of level rack"
  bool feasible = true;     ///< whether there is a plan then
  std::string reason = {};  ///< why there is none; empty otherwise
  Strategy strategy = Strategy::Serial;  ///< of the new plan
  std::string config = {};
  double throughput_samples_per_s = 0;
  /// Throughput divided by that of the original plan; 0 when that is not known.
  double speedup = 0;
  int64_t memory_bytes = 0;  ///< of the worker that needs most

  bool operator==(const WhatIfResult&) const = default;
};

}  // namespace penstock::plan
