// The state of one worker in a simulation; internal to the simulator.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "penstock/schedule/action.h"
#include "penstock/simulate/memory.h"
#include "penstock/simulate/values.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/numbers/rounding.h"

namespace penstock::simulate::detail {

/// Everything that an event needs of a worker is in one place, because on large clusters it is not
/// in the cache.
template <class Cursor>
struct alignas(64) WorkerState {
  schedule::Action action;  ///< the one it is at, if `has_action`
  int64_t now_ns = 0;       ///< end of the last action
  int64_t ready_ns = 0;     ///< a send may not begin before this time
  /// Of the message it is at: twice the link's number, plus one for gradients.
  int32_t lane = 0;
  int32_t replica = 0;  ///< that receives it, and its worker
  int32_t receiver = 0;
  int32_t next_at_meeting = -1;
  bool has_action = false;
  bool awaits = false;    ///< waits for a message that has not arrived
  bool together = false;  ///< the members of its team have all come to its action
  int64_t met_ns = 0;     ///< how long it has waited for them
  int64_t busy_ns = 0;
  /// Processor time of messages that it has not paid yet, and how much waiting has paid so far.
  int64_t owed_ns = 0;
  int64_t paid_ns = 0;
  /// What is left of the time of two actions that run together for the second one, and the same
  /// while the worker is at the first one. -1: the next action runs alone.
  int64_t rest_ns = -1;
  int64_t beside_ns = -1;
  MemoryMeter memory;
  Cursor cursor;

  bool awaits_message(int32_t wanted_lane, MicroBatchId micro_batch) const {
    return awaits && lane == wanted_lane && action.micro_batch == micro_batch;
  }
  /// A message takes processor time from it.
  void owe(int64_t processor_ns) { owed_ns = saturating_add(owed_ns, processor_ns); }
  /// Waiting pays what is owed.
  void pay_with(int64_t waiting_ns) {
    const int64_t paid = std::min(owed_ns, waiting_ns);
    owed_ns -= paid;
    paid_ns += paid;
  }
  /// Prefetches it into the cache.
  void prefetch() const {
    constexpr size_t kCacheLine = 64;
    for (size_t offset = 0; offset < sizeof(*this); offset += kCacheLine) {
      __builtin_prefetch(reinterpret_cast<const char*>(this) + offset);
    }
  }
};

/// The time that two actions running together take, as parts of it in proportion to their own
/// times.
struct SharedTime {
  int64_t first_ns = 0;
  int64_t second_ns = 0;
};
inline SharedTime shared_time(int64_t first_ns, int64_t second_ns, double overlap) {
  const int64_t saved_ns =
      std::min(nearest(overlap * static_cast<double>(std::min(first_ns, second_ns))),
               std::min(first_ns, second_ns));
  const double share = saved_ns == 0
                           ? 0
                           : static_cast<double>(first_ns) /
                                 (static_cast<double>(first_ns) + static_cast<double>(second_ns));
  const int64_t first_saved_ns = nearest(share * static_cast<double>(saved_ns));
  return {first_ns - first_saved_ns, second_ns - (saved_ns - first_saved_ns)};
}

/// How long the stage's F, B, I, W, R or STEP takes; 0 for everything else.
inline int64_t planned_work_ns(const StageCost& stage, schedule::Op op) {
  using schedule::Op;
  switch (op) {
    case Op::Forward:
    case Op::Recompute:
      return stage.forward_ns;
    case Op::Backward:
      return stage.backward_ns;
    case Op::BackwardInput:
      return stage.backward_ns - stage.backward_weight_ns;
    case Op::BackwardWeight:
      return stage.backward_weight_ns;
    case Op::Step:
      return stage.step_ns;
    default:
      return 0;
  }
}

}  // namespace penstock::simulate::detail
