// The workers that wait for each other at a SYNC or a NORM; internal to the simulator.
#pragma once

#include <algorithm>
#include <cstdint>

#include "penstock/util/ids.h"

namespace penstock::simulate::detail {

struct Meeting {
  int32_t arrived = 0;
  int32_t first_waiting = -1;  ///< the others follow by WorkerState::next_at_meeting
  int64_t latest_ns = 0;
  MiniBatchId mini_batch;

  /// False when the waiting workers are at another mini-batch: then they wait forever.
  bool arrive(MiniBatchId wanted, int64_t now_ns) {
    if (arrived > 0 && mini_batch != wanted) return false;
    mini_batch = wanted;
    latest_ns = std::max(latest_ns, now_ns);
    ++arrived;
    return true;
  }
};

}  // namespace penstock::simulate::detail
