// How long a blocking call of the runtime may last, how long it did last, and why it ended.
#pragma once

#include <chrono>
#include <cstdint>

#include "penstock/util/process/mutex.h"

namespace penstock::runtime {

/// Why a wait ended.
enum class WaitResult : uint8_t {
  Ready,
  TimedOut,
  Closed,  ///< some worker has failed: leave
};

/// Given to a blocking call. One object may be used for several calls, one after another.
struct Wait {
  CondVar::Deadline deadline;
  /// The calls add the time that they were blocked; computing and copying do not count.
  int64_t waited_ns = 0;
};

/// A wait that ends `timeout` from now.
inline Wait wait_for(std::chrono::milliseconds timeout) {
  return {std::chrono::steady_clock::now() + timeout};
}

}  // namespace penstock::runtime
