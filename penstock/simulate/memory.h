// Memory of one worker, action by action; internal to the simulator.
#pragma once

#include <algorithm>
#include <cstdint>

#include "penstock/schedule/action.h"
#include "penstock/simulate/simulator.h"
#include "penstock/util/arithmetic.h"

namespace penstock::simulate::detail {

/// The largest sum, at any moment of a worker's list, of: weight versions held, one gradient buffer, the optimiser's state, and the stashes
/// of micro-batches between their F and their B. A worker without any B keeps weights alone. It does not depend on times. Saturates.
class MemoryMeter {
 public:
  /// Before the worker's first action, once for each stage that it holds.
  void add_stage(const StageCost& stage, bool trains, double optimizer_state_per_weight) {
    trains_ = trains;
    now_ = saturating_add(now_, stage.weight_bytes);
    if (trains) {
      const double state = static_cast<double>(stage.weight_bytes) * optimizer_state_per_weight;
      now_ = saturating_add(now_, stage.weight_bytes);
      now_ = saturating_add(now_, state >= 9.2e18 ? INT64_MAX : static_cast<int64_t>(state));
    }
    peak_ = now_;
  }

  void on(schedule::Op op, const StageCost& stage) {
    const int64_t kept = stage.recompute ? stage.input_bytes : stage.stash_bytes;
    switch (op) {
      case schedule::Op::Forward:
        if (trains_) change(kept);
        return;
      case schedule::Op::Backward:
        if (stage.recompute) peak_ = std::max(peak_, saturating_add(now_, stage.stash_bytes));
        return change(-kept);
      // A FREE right before the STEP that replaces its version makes the step work in place: minus one, plus one, no higher peak.
      case schedule::Op::Step:
        return change(stage.weight_bytes);
      case schedule::Op::FreeWeights:
        return change(-stage.weight_bytes);
      default:
        return;
    }
  }

  int64_t peak_bytes() const { return peak_; }

 private:
  void change(int64_t bytes) {
    if (now_ == INT64_MAX) return;
    now_ = saturating_add(now_, bytes);
    peak_ = std::max(peak_, now_);
  }

  int64_t now_ = 0;
  int64_t peak_ = 0;
  bool trains_ = false;
};

}  // namespace penstock::simulate::detail
