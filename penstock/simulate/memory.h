// Memory of one worker, action by action; internal to the simulator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "penstock/schedule/action.h"
#include "penstock/simulate/values.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/numbers/rounding.h"

namespace penstock::simulate::detail {

/// What the actions of one stage allocate and release.
struct StageMemory {
  /// `newest_only`: the stage keeps the newest micro-batch, all the time (WeightPolicy::Current).
  StageMemory(const StageCost& stage, bool recomputes, bool newest_only)
      : always_bytes(newest_only ? of_one(stage, recomputes) : 0),
        kept_bytes(newest_only ? 0 : of_one(stage, recomputes)),
        remade_bytes(recomputes ? stage.stash_bytes : 0),
        version_bytes(stage.weight_bytes - stage.short_weight_bytes / 2),
        working_bytes(stage.working_bytes) {}

  static int64_t of_one(const StageCost& stage, bool recomputes) {
    return recomputes ? stage.input_bytes : stage.stash_bytes;
  }

  int64_t always_bytes;   ///< where the worker trains
  int64_t kept_bytes;     ///< from F on
  int64_t remade_bytes;   ///< from R on
  int64_t version_bytes;  ///< of one version of the weights
  int64_t working_bytes;  ///< while a backward pass runs
};

/// The largest sum, at any moment of a worker's list, of: weight versions held (and the float32
/// weights behind those of 16 bits, once), constants, gradients and the optimiser's state of each
/// stage, the stashes of micro-batches from their F (or R) to their B or W, less those that are in
/// the memory of the host, and what a backward pass needs while it runs. A worker without any B or
/// W keeps only weights. It does not depend on times. Saturates.
class MemoryMeter {
 public:
  /// Before the worker's first action, once for each stage that it holds. `trains`: the worker has
  /// a B or W of the stage.
  void add_stage(const StageCost& stage, const StageMemory& memory, bool trains,
                 double optimizer_state_per_weight) {
    trains_ = trains_ || trains;
    now_ = saturating_add(now_, saturating_add(memory.version_bytes, stage.short_weight_bytes));
    now_ = saturating_add(now_, stage.constant_bytes);
    if (trains) {
      now_ = saturating_add(now_, memory.always_bytes);
      now_ = saturating_add(now_, saturating_mul(stage.gradient_sets, stage.weight_bytes));
      const int64_t state =
          rounded_down(static_cast<double>(stage.weight_bytes) * optimizer_state_per_weight);
      now_ = saturating_add(now_, ceil_div(state, stage.state_parts));
    }
    peak_ = now_;
  }

  void on(const schedule::Action& action, const StageMemory& stage) {
    switch (action.op) {
      case schedule::Op::Forward:
        if (trains_) change(stage.kept_bytes);
        return;
      case schedule::Op::Recompute:
        return change(stage.remade_bytes);
      // What is on its way to the host is here until the next OFFLOAD, which waits for it.
      case schedule::Op::Offload:
        change(-leaving_bytes_);
        leaving_bytes_ = stage.kept_bytes;
        leaving_ = {action.stage, action.micro_batch};
        return;
      case schedule::Op::Load:
        if (leaving_bytes_ == 0 || leaving_ != std::pair(action.stage, action.micro_batch))
          return change(stage.kept_bytes);
        leaving_bytes_ = 0;
        return;
      case schedule::Op::BackwardInput:
        return pass(stage.working_bytes);
      case schedule::Op::Backward:
      case schedule::Op::BackwardWeight:
        pass(stage.working_bytes);
        return change(-saturating_add(stage.kept_bytes, stage.remade_bytes));
      // A FREE directly before the STEP that replaces its version makes the step work in place: one
      // version less, then one more, so the peak does not rise.
      case schedule::Op::Step:
        return change(stage.version_bytes);
      case schedule::Op::FreeWeights:
        return change(-stage.version_bytes);
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

  void pass(int64_t bytes) { peak_ = std::max(peak_, saturating_add(now_, bytes)); }

  int64_t now_ = 0;
  int64_t peak_ = 0;
  int64_t leaving_bytes_ = 0;  ///< of the last OFFLOAD
  std::pair<StageId, MicroBatchId> leaving_{StageId{-1}, MicroBatchId{-1}};
  bool trains_ = false;
};

}  // namespace penstock::simulate::detail
