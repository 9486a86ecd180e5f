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
#include "penstock/schedule/worker_table.h"
#include "penstock/simulate/values.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/numbers/rounding.h"
#include "penstock/util/process/memory_kinds.h"

namespace penstock::simulate::detail {

/// How the gradients of a stage's weights come and go during a mini-batch.
struct GradientMemory {
  GradientMemory(const StageCost& stage, const schedule::ScheduleShape& shape, StageId id)
      : is_known(knows_passes(stage, shape, id)), bytes(stage.weight_bytes) {
    if (!is_known) return;
    replicas = shape.replicas[id.index()];
    accumulate = shape.accumulate;
    micro_batches = shape.micro_batches;
    passes = *stage.passes;
    passes.steps = passes.steps && replicas == 1 && !shape.global_norm &&
                   !plan::backward_reads_newest(shape.policy) &&
                   shape.compensation == plan::Compensation::None;
    if (passes.steps) return;
    passes.last_bytes = saturating_add(bytes, stage.working_bytes);
    passes.only_bytes = passes.first_bytes;
  }

  static bool knows_passes(const StageCost& stage, const schedule::ScheduleShape& shape,
                           StageId id) {
    const bool adds_alone = shape.replicas[id.index()] == 1 || stage.shares_weights;
    return stage.passes && adds_alone && stage.gradient_sets == 1 &&
           !traits(shape.policy).newest_only;
  }

  /// Of the mini-batch of this B or W, on its worker.
  int64_t num_passes(const schedule::Action& action) const {
    const int64_t begin = action.mini_batch.value * accumulate;
    const int64_t end = std::min(begin + accumulate, micro_batches);
    if (replicas == 1) return end - begin;
    const int64_t own = action.micro_batch.value % replicas;
    const auto below = [&](int64_t b) { return (b + replicas - 1 - own) / replicas; };
    return below(end) - below(begin);
  }

  bool is_known;      ///< otherwise they are there at all times
  int64_t bytes = 0;  ///< of all of them
  int64_t replicas = 1;
  int64_t accumulate = 1;
  int64_t micro_batches = 0;
  plan::PassMemory passes = {};
};

/// What the actions of one stage allocate and release.
struct StageMemory {
  StageMemory(const StageCost& stage, const schedule::ScheduleShape& shape, StageId id)
      : StageMemory(stage, shape, id, shape.recomputes(id), traits(shape.policy).newest_only) {}
  /// `newest_only`: the stage keeps the newest micro-batch, all the time (WeightPolicy::Current).
  StageMemory(const StageCost& stage, const schedule::ScheduleShape& shape, StageId id,
              bool recomputes, bool newest_only)
      : always_bytes(newest_only ? of_one(stage, recomputes) : 0),
        kept_bytes(newest_only ? 0 : of_one(stage, recomputes)),
        remade_bytes(recomputes ? stage.stash_bytes : 0),
        version_bytes(stage.weight_bytes - stage.short_weight_bytes / 2),
        working_bytes(stage.working_bytes),
        state_parts(stage.shares_weights ? shape.replicas[id.index()] : stage.state_parts),
        gradients(stage, shape, id) {}

  static int64_t of_one(const StageCost& stage, bool recomputes) {
    return recomputes ? stage.input_bytes : stage.stash_bytes;
  }

  int64_t always_bytes;  ///< where the worker trains
  MemoryKind always_kind = MemoryKind::Activations;
  int64_t kept_bytes;     ///< from F on
  int64_t remade_bytes;   ///< from R on
  int64_t version_bytes;  ///< of one version of the weights
  int64_t working_bytes;  ///< while a backward pass runs
  int state_parts;        ///< of the optimiser's state, of which a worker has one
  GradientMemory gradients;
};

/// Of all stages of a schedule of this shape.
inline std::vector<StageMemory> stage_memories(const schedule::ScheduleShape& shape,
                                               const std::vector<StageCost>& stages) {
  std::vector<StageMemory> memories;
  for (size_t s = 0; s < stages.size(); ++s)
    memories.emplace_back(stages[s], shape, StageId{static_cast<int32_t>(s)});
  const std::vector<int64_t> copies = schedule::compensation_copies(shape);
  for (size_t s = 0; s < copies.size(); ++s) {
    memories[s].always_bytes = saturating_mul(copies[s], memories[s].version_bytes);
    memories[s].always_kind = MemoryKind::Versions;
  }
  return memories;
}

/// Whether a worker has the weights of a stage: of replicas that share them, the first one counts
/// them.
inline bool counts_weights(const StageCost& stage, const schedule::WorkerTable& table, StageId id,
                           int32_t worker) {
  return !stage.shares_weights || table.worker_of_replica(id, 0).value == worker;
}

/// The largest sum, at any moment of a worker's list, of: weight versions held (and the float32
/// weights behind those of 16 bits, once), constants, gradients and the optimiser's state of each
/// stage, the stashes of micro-batches from their F (or R) to their B or W, less those that are in
/// the memory of the host, and what a backward pass needs while it runs. Where passes of a stage
/// are known (GradientMemory), its gradients are there from the first one of a mini-batch to STEP,
/// or to the last one if that steps. A worker without any B or W keeps only weights. It does not
/// depend on times. Saturates. `kByKind`: also keeps what the largest sum consists of.
template <bool kByKind>
class BasicMemoryMeter {
 public:
  /// Before the worker's first action, once for each stage that it holds. `trains`: the worker has
  /// a B or W of the stage. `has_weights`: counts_weights().
  void add_stage(StageId id, const StageCost& stage, const StageMemory& memory, bool trains,
                 bool has_weights, double optimizer_state_per_weight) {
    trains_ = trains_ || trains;
    if (has_weights)
      change(MemoryKind::Weights, saturating_add(memory.version_bytes, stage.short_weight_bytes));
    change(MemoryKind::Constants, stage.constant_bytes);
    if (!trains) return;
    change(memory.always_kind, memory.always_bytes);
    if (memory.gradients.is_known)
      add_gradients(id);
    else
      change(MemoryKind::Gradients, saturating_mul(stage.gradient_sets, stage.weight_bytes));
    const int64_t state =
        rounded_down(static_cast<double>(stage.weight_bytes) * optimizer_state_per_weight);
    change(MemoryKind::OptimizerState, ceil_div(state, memory.state_parts));
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
        return pass(input_pass_bytes(action, stage));
      case schedule::Op::Backward:
      case schedule::Op::BackwardWeight:
        if (stage.gradients.is_known) return weight_pass(action, stage);
        pass(stage.working_bytes);
        return change(MemoryKind::Activations,
                      -saturating_add(stage.kept_bytes, stage.remade_bytes));
      // A FREE directly before the STEP that replaces its version makes the step work in place: one
      // version less, then one more, so the peak does not rise.
      case schedule::Op::Step:
        change(MemoryKind::Versions, stage.version_bytes);
        if (Gradients* own = known_gradients(action.stage)) end_gradients(*own, stage);
        return;
      case schedule::Op::FreeWeights:
        if (Gradients* own = known_gradients(action.stage)) own->stepped_bytes = 0;
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
    MemoryBytes stepped;  ///< in the last pass that stepped
  };
  struct Nothing {};

  /// Of a stage's mini-batch.
  struct Gradients {
    StageId stage{-1};
    int32_t passes = 0;         ///< that have made them
    bool are_there = false;     ///< between passes
    int64_t stepped_bytes = 0;  ///< at the most of a pass that stepped, if no FREE came since
  };

  void add_gradients(StageId stage) {
    if (first_.stage.value < 0)
      first_.stage = stage;
    else
      others_.push_back({.stage = stage});
  }

  /// Null where passes are not known, and where the worker has none: with more replicas than
  /// micro-batches some only step.
  Gradients* known_gradients(StageId stage) {
    if (first_.stage == stage) return &first_;
    const auto found =
        std::find_if(others_.begin(), others_.end(),
                     [stage](const Gradients& other) { return other.stage == stage; });
    return found == others_.end() ? nullptr : &*found;
  }
  /// Of a stage of which the worker has passes.
  Gradients& gradients_of(StageId stage) { return *known_gradients(stage); }

  /// I may make gradients, too, which the stage keeps until W.
  int64_t input_pass_bytes(const schedule::Action& action, const StageMemory& stage) {
    if (!stage.gradients.is_known || gradients_of(action.stage).are_there)
      return stage.working_bytes;
    return saturating_add(stage.working_bytes, stage.gradients.bytes);
  }

  void weight_pass(const schedule::Action& action, const StageMemory& stage) {
    const plan::PassMemory& passes = stage.gradients.passes;
    Gradients& own = gradients_of(action.stage);
    const bool is_first = own.passes++ == 0;
    const bool steps = passes.steps && own.passes == stage.gradients.num_passes(action);
    int64_t bytes = is_first ? passes.first_bytes : stage.working_bytes;
    if (steps) bytes = is_first ? passes.only_bytes : passes.last_bytes - stage.gradients.bytes;
    pass(bytes);
    own.stepped_bytes = steps ? saturating_add(now_, std::max<int64_t>(bytes, 0)) : 0;
    if constexpr (kByKind) parts_.stepped = parts_.now;
    change(MemoryKind::Activations, -saturating_add(stage.kept_bytes, stage.remade_bytes));
    const bool are_left = !steps;
    if (own.are_there != are_left)
      change(MemoryKind::Gradients, are_left ? stage.gradients.bytes : -stage.gradients.bytes);
    own.are_there = are_left;
  }

  /// A step within its pass that could not write over a version has made a new one meanwhile.
  void end_gradients(Gradients& own, const StageMemory& stage) {
    if (own.stepped_bytes > 0) {
      const int64_t stepped = saturating_add(own.stepped_bytes, stage.version_bytes);
      if (stepped > peak_) {
        peak_ = stepped;
        if constexpr (kByKind) {
          parts_.at_peak = parts_.stepped;
          int64_t& versions = parts_.at_peak[MemoryKind::Versions];
          versions = saturating_add(versions, stage.version_bytes);
          parts_.at_peak[MemoryKind::Working] = own.stepped_bytes - parts_.stepped.sum();
        }
      }
    }
    if (own.are_there) change(MemoryKind::Gradients, -stage.gradients.bytes);
    own = {.stage = own.stage};
  }

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
  Gradients first_;                ///< of the first stage whose passes are known
  std::vector<Gradients> others_;  ///< of others of the worker
  [[no_unique_address]] std::conditional_t<kByKind, Parts, Nothing> parts_;
};

using MemoryMeter = BasicMemoryMeter<false>;

}  // namespace penstock::simulate::detail
