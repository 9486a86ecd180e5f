// Memory of one worker, action by action; internal to the simulator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "penstock/plan/weight_rules.h"
#include "penstock/schedule/action.h"
#include "penstock/schedule/schedule.h"
#include "penstock/simulate/values.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/numbers/rounding.h"
#include "penstock/util/process/memory_kinds.h"

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

  int64_t always_bytes;  ///< where the worker trains
  MemoryKind always_kind = MemoryKind::Activations;
  int64_t kept_bytes;     ///< from F on
  int64_t remade_bytes;   ///< from R on
  int64_t version_bytes;  ///< of one version of the weights
  int64_t working_bytes;  ///< while a backward pass runs
};

/// Of all stages of a schedule of this shape.
inline std::vector<StageMemory> stage_memories(const schedule::ScheduleShape& shape,
                                               const std::vector<StageCost>& stages) {
  std::vector<StageMemory> memories;
  for (size_t s = 0; s < stages.size(); ++s) {
    memories.emplace_back(stages[s], shape.recomputes(StageId{static_cast<int32_t>(s)}),
                          traits(shape.policy).newest_only);
  }
  const std::vector<int64_t> copies = schedule::compensation_copies(shape);
  for (size_t s = 0; s < copies.size(); ++s) {
    memories[s].always_bytes = saturating_mul(copies[s], memories[s].version_bytes);
    memories[s].always_kind = MemoryKind::Versions;
  }
  return memories;
}

/// The largest sum, at any moment of a worker's list, of: weight versions held (and the float32
/// weights behind those of 16 bits, once), constants, gradients and the optimiser's state of each
/// stage, the stashes of micro-batches from their F (or R) to their B or W, less those that are in
/// the memory of the host, and what a backward pass needs while it runs. A worker without any B or
/// W keeps only weights. It does not depend on times. Saturates. `kByKind`: also keeps what the
/// largest sum consists of.
template <bool kByKind>
class BasicMemoryMeter {
 public:
  /// Before the worker's first action, once for each stage that it holds. `trains`: the worker has
  /// a B or W of the stage.
  void add_stage(const StageCost& stage, const StageMemory& memory, bool trains,
                 double optimizer_state_per_weight) {
    trains_ = trains_ || trains;
    change(MemoryKind::Weights, saturating_add(memory.version_bytes, stage.short_weight_bytes));
    change(MemoryKind::Constants, stage.constant_bytes);
    if (!trains) return;
    change(memory.always_kind, memory.always_bytes);
    change(MemoryKind::Gradients, saturating_mul(stage.gradient_sets, stage.weight_bytes));
    const int64_t state =
        rounded_down(static_cast<double>(stage.weight_bytes) * optimizer_state_per_weight);
    change(MemoryKind::OptimizerState, ceil_div(state, stage.state_parts));
  }

  void on(const schedule::Action& action, const StageMemory& stage) {
    switch (action.op) {
      case schedule::Op::Forward:
        if (trains_) change(MemoryKind::Activations, stage.kept_bytes);
        return;
      case schedule::Op::Recompute:
        return change(MemoryKind::Activations, stage.remade_bytes);
      // What is on its way to the host is here until the next OFFLOAD, which waits for it.
      case schedule::Op::Offload:
        change(MemoryKind::Activations, -leaving_bytes_);
        leaving_bytes_ = stage.kept_bytes;
        leaving_ = {action.stage, action.micro_batch};
        return;
      case schedule::Op::Load:
        if (leaving_bytes_ == 0 || leaving_ != std::pair(action.stage, action.micro_batch))
          return change(MemoryKind::Activations, stage.kept_bytes);
        leaving_bytes_ = 0;
        return;
      case schedule::Op::BackwardInput:
        return pass(stage.working_bytes);
      case schedule::Op::Backward:
      case schedule::Op::BackwardWeight:
        pass(stage.working_bytes);
        return change(MemoryKind::Activations,
                      -saturating_add(stage.kept_bytes, stage.remade_bytes));
      // A FREE directly before the STEP that replaces its version makes the step work in place: one
      // version less, then one more, so the peak does not rise.
      case schedule::Op::Step:
        return change(MemoryKind::Versions, stage.version_bytes);
      case schedule::Op::FreeWeights:
        return change(MemoryKind::Versions, -stage.version_bytes);
      default:
        return;
    }
  }

  int64_t peak_bytes() const { return peak_; }
  /// Their sum is peak_bytes(), unless that has saturated.
  const MemoryBytes& peak() const requires kByKind { return parts_.at_peak; }

 private:
  struct Parts {
    MemoryBytes now;
    MemoryBytes at_peak;
  };
  struct Nothing {};

  void change(MemoryKind kind, int64_t bytes) {
    if (now_ == INT64_MAX) return;
    now_ = saturating_add(now_, bytes);
    if constexpr (kByKind) parts_.now[kind] = saturating_add(parts_.now[kind], bytes);
    if (now_ > peak_) rise(now_, 0);
  }

  void pass(int64_t bytes) {
    if (const int64_t sum = saturating_add(now_, bytes); sum > peak_) rise(sum, bytes);
  }

  void rise(int64_t peak, int64_t working) {
    peak_ = peak;
    if constexpr (kByKind) {
      parts_.at_peak = parts_.now;
      parts_.at_peak[MemoryKind::Working] = working;
    }
  }

  int64_t now_ = 0;
  int64_t peak_ = 0;
  int64_t leaving_bytes_ = 0;  ///< of the last OFFLOAD
  std::pair<StageId, MicroBatchId> leaving_{StageId{-1}, MicroBatchId{-1}};
  bool trains_ = false;
  [[no_unique_address]] std::conditional_t<kByKind, Parts, Nothing> parts_;
};

using MemoryMeter = BasicMemoryMeter<false>;

}  // namespace penstock::simulate::detail
