// Memory of one worker of a stage, as far as it is known while the split is still being searched.
// The search only ever needs what lies at and after the stage; plans report the simulator's exact
// peaks instead (docs/planner.md, "Memory").
#pragma once

#include <cstdint>
#include <optional>

#include "penstock/plan/strategy.h"
#include "penstock/planner/cost/layer_cost.h"
#include "penstock/planner/plan_options.h"

namespace penstock::planner {

/// What a stage keeps, for one micro-batch.
struct StageMemory {
  LayerSums sums;
  /// Activations that enter from the stages before; gradients of the same size leave.
  int64_t input_bytes = 0;
  /// Activations that leave to the stages after; gradients of the same size enter.
  int64_t output_bytes = 0;
  /// Keeps the inputs of each micro-batch in flight, and all activations of one at a time.
  bool recompute = false;
  /// plan::Stage::working_bytes; 0 while the stage is still being searched.
  int64_t working_bytes = 0;
};

/// How much a worker holds at once.
struct Held {
  int64_t in_flight = 0;  ///< micro-batches
  int64_t versions = 1;   ///< of its weights
  int64_t gradient_sets = 1;
  int state_parts = 1;  ///< of which it has one: plan::Stage::kept_state_parts()
  /// MemoryModel::frees_gradients: how many of the passes with all of these in flight have all
  /// gradients beside them.
  enum class GradientsBeside : uint8_t { All, AllButFirst, None } gradients = GradientsBeside::All;
};

struct MemoryModel {
  plan::Strategy strategy = plan::Strategy::OneFOneB;
  plan::WeightPolicy policy = plan::WeightPolicy::Stash;
  plan::Compensation compensation = plan::Compensation::None;
  int64_t limit_bytes = 0;    ///< per worker; 0: that of its device, if any
  int64_t micro_batches = 0;  ///< per step; 0: not known yet, one round of the stage's replicas
  int max_workers = 1;
  double optimizer_state_per_weight = 1.0;  ///< bytes per weight byte (SGD with momentum 1, Adam 2)
  /// The part of the model's weights whose versions have 16 bits beside float32 weights, which
  /// exist once. Taken for that of every stage; plans report each stage's own.
  double short_weight_share = 0;
  /// Eager-1f1b: micro-batches in flight beyond 1F1B's for each stage behind.
  int64_t slack = 0;
  int64_t keep = 0;  ///< as plan::Stage::keep
  /// Summed apart under flush; nothing: one per replica of the stage.
  std::optional<int64_t> gradient_groups = {};
  /// Replicas share out the optimiser's state.
  bool shard_optimizer = false;
  /// Gradients are there from the first pass of a step on: workers are CPUs.
  bool frees_gradients = false;
  /// And only within a pass where a worker makes one in each step, which steps meanwhile.
  bool steps_in_pass = false;
  /// Activations are moved to the memory of the host.
  bool offload = false;
  /// Activations may be smaller by this share (Context::stash_uncertainty): a stage that fits then
  /// is not refused.
  double stash_uncertainty = 0;

  /// Micro-batches that one of `replicas` workers holds at once, with `workers_from_here` workers
  /// at and after the stage; for eager-1f1b, zb-h1 and zb-h2 on replicated stages an upper bound.
  /// Workers with one stage alone: for the others only their simulated peaks count.
  int64_t in_flight(int replicas, int64_t workers_from_here) const;

  /// Weight versions held at once, with the copies of the compensation; for vertical-sync an upper
  /// bound, since it depends on the stages before.
  int64_t versions(int replicas, int64_t workers_from_here) const;

  /// Sets of gradients held at once (schedule/gradient_sets.h).
  int64_t gradient_sets(int replicas) const;

  /// All three of them.
  Held held(int replicas, int64_t workers_from_here) const;

  /// Versions, gradients, optimiser state, stashes and communication buffers of one worker, at
  /// least. Never rises when `workers_from_here` falls. Saturates.
  int64_t stage_bytes(const StageMemory& stage, int replicas, int64_t workers_from_here) const {
    return stage_bytes(stage, held(replicas, workers_from_here));
  }
  int64_t stage_bytes(const StageMemory& stage, const Held& held) const;

  /// The same without stashes.
  int64_t fixed_bytes(const StageMemory& stage, const Held& held) const;

  /// Stashed activations of `in_flight` micro-batches; with recomputation their inputs, and the
  /// activations of the one that is run again.
  static int64_t stash_bytes(const StageMemory& stage, int64_t in_flight);

  /// One message each way with the stages before and with those after.
  static int64_t buffer_bytes(const StageMemory& stage);

  bool fits(const StageMemory& stage, int replicas, int64_t workers_from_here,
            int64_t limit) const {
    return limit <= 0 || stage_bytes(stage, replicas, workers_from_here) <= limit;
  }

  /// The smallest count in [least, most] of a stage in front of `workers_after` workers that may
  /// fit into `limit` bytes (0: no limit), or
  /// 0. Counts below it do not fit.
  int fewest_replicas(const StageMemory& stage, int64_t workers_after, int least, int most,
                      int64_t limit) const;

 private:
  int64_t in_flight(const plan::StrategyTraits& row, int replicas, int64_t workers_from_here) const;
  /// As versions(), with what in_flight() says.
  int64_t versions_for(int replicas, int64_t in_flight) const;
  Held held(const plan::StrategyTraits& row, int replicas, int64_t workers_from_here) const;
  /// Where no input of a next micro-batch need wait (absent_input_bytes()), inputs once.
  int64_t least_buffer_bytes(const StageMemory& stage) const;
  Held::GradientsBeside gradients_beside(int replicas, int64_t in_flight) const;
  /// Of all replicas together where they share it out.
  int64_t state_bytes(const StageMemory& stage) const;
  int64_t weight_bytes(const StageMemory& stage, const Held& held) const;
  /// Stashes, with all gradients beside all of them, or all but one.
  int64_t kept_bytes(const plan::StrategyTraits& row, const StageMemory& stage,
                     int64_t in_flight) const;
  /// What does: versions, gradients and stashes.
  int64_t held_bytes(const plan::StrategyTraits& row, const StageMemory& stage,
                     const Held& held) const;
  /// The next replica count after `replicas` at which the depth or the share of a step changes.
  int64_t next_change(int64_t replicas, int64_t workers_after) const;
};

}  // namespace penstock::planner
