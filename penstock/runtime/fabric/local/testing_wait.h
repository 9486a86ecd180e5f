// For tests: a wait that ends.
#pragma once

#include <chrono>

#include "penstock/runtime/fabric/wait.h"

namespace penstock::runtime::testing {

inline Wait soon(int ms = 5000) { return wait_for(std::chrono::milliseconds(ms)); }

}  // namespace penstock::runtime::testing
