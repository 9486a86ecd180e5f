// A split of a model, and what follows from it before anything is priced: workers, memory, the
// micro-batches of a step. Internal to the planner.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "penstock/plan/plan.h"
#include "penstock/planner/pricing/context.h"
#include "penstock/schedule/generate.h"

namespace penstock::planner {

/// A split of the layers with what is needed to run it.
struct Split {
  plan::Strategy strategy = plan::Strategy::OneFOneB;
  plan::WeightPolicy policy = plan::WeightPolicy::Stash;
  std::vector<std::vector<LayerId>> stages;
  /// One per stage, disjoint; with `worker_of_replica`: where its workers stand in them.
  std::vector<cluster::WorkerRange> places;
  std::vector<bool> recompute;  ///< one per stage
  /// As plan::Plan::worker_of_replica: where workers hold several stages, otherwise empty.
  std::vector<int> worker_of_replica = {};
  /// Members of each stage's teams; then places are of all members. Empty: stages are whole.
  std::vector<int> teams = {};
  /// One per stage, or empty: as the options say.
  std::vector<bool> shard_optimizer = {};
  std::vector<bool> offload = {};  ///< as shard_optimizer
  int64_t slack = 0;               ///< eager-1f1b
  std::vector<int64_t> keep = {};  ///< as plan::Stage::keep, one per stage, or empty: 0

  std::vector<int> replicas() const;
  int num_workers() const;
  int64_t keep_of(size_t stage) const { return stage < keep.size() ? keep[stage] : 0; }
  /// The workers of a stage, for splits with `worker_of_replica`. O(1).
  std::span<const int> workers_of(size_t stage) const;
  bool operator==(const Split&) const = default;
};

/// The lowest level a unit of which holds all of these workers.
int level_of_all(const cluster::Topology& topology, std::span<const int> workers);
/// The same of a stage's workers.
int stage_level(const Context& context, const Split& split, size_t stage);

/// Of the slowest of a stage's workers, and what the one with the least memory may use.
double stage_speed(const Context& context, const Split& split, size_t stage);
int64_t stage_limit_bytes(const Context& context, const Split& split, size_t stage);
/// What the plan predicts for the stage, or less where activations are a guess.
int64_t least_stage_bytes(const Context& context, const plan::Plan& plan, size_t stage);
/// Whether that fits.
bool stage_fits(const Context& context, const Split& split, const plan::Plan& plan, size_t stage);

/// Micro-batches per optimiser step when the user gives none: one for serial and mp, one per
/// replica for dp, the least common multiple of the replica counts for 1f1b, the smallest multiple
/// of it that reaches the depth for 2bw, and that reaches four per worker for the synchronous
/// pipelines. Where that multiple would be absurd, the number of workers stands for it.
int64_t chosen_micro_batches(plan::Strategy strategy, const std::vector<int>& replicas);

/// The same within the user's mini-batch, all of which the synchronous kinds use.
int64_t chosen_micro_batches(const Context& context, plan::Strategy strategy,
                             const std::vector<int>& replicas);

/// The same for a split, whose workers may hold several stages.
int64_t chosen_micro_batches(const Context& context, const Split& split);

/// What the options ask for, where it works with the policy; otherwise none.
plan::Compensation compensation_of(const Context& context, plan::WeightPolicy policy);

/// Whether replicas side by side may have their weights once (pass_memory.h).
bool may_share_weights(const Context& context, plan::WeightPolicy policy);

/// The memory model that a search for plans of this strategy uses. `gradient_groups` as
/// MemoryModel::gradient_groups.
MemoryModel memory_model(const Context& context, plan::Strategy strategy, plan::WeightPolicy policy,
                         int64_t micro_batches, int64_t slack,
                         std::optional<int64_t> gradient_groups);

/// The groups that gradients are counted in: at least the user's, as many as suit all replicas; 0:
/// one per replica of each stage.
std::optional<int64_t> gradient_groups(const Context& context, const Split& split);

/// What the backward pass of these layers, in topological order, needs at its most beyond what is
/// saved for it and beyond `message_bytes`, those that arrive and leave for each micro-batch: the
/// gradients of values that cross are of both. The pass goes from the last layer to the first and
/// frees what each has saved.
int64_t working_bytes(const Context& context, const std::vector<LayerId>& layers,
                      int64_t message_bytes);
/// The same for a stage that keeps so many micro-batches while a pass runs. Or, where that is more,
/// what the norm of gradients needs beyond stashes and messages, which are gone by then.
int64_t working_bytes(const Context& context, const std::vector<LayerId>& layers,
                      const StageMemory& memory, int64_t in_flight);

/// What the worker with the first layer needs for a norm where stages share weights: gradients that
/// the others send, a sum for each such weight, and one of the sums in double precision.
int64_t tied_norm_bytes(const Context& context, const std::vector<LayerId>& layers);

/// What these layers save of values that layers elsewhere save, too, and count: a stage has a copy
/// of its own.
int64_t received_stash_bytes(const Context& context, const std::vector<LayerId>& layers);

/// What recomputation makes again of a micro-batch, beyond the inputs that it has kept, of so many
/// bytes: those are a part of what is saved, or go.
int64_t remade_stash_bytes(const Context& context, const std::vector<LayerId>& layers,
                           int64_t input_bytes);

/// What a stage keeps that holds these layers, between boundaries crossed by this many bytes.
StageMemory stage_memory(const Context& context, const std::vector<LayerId>& layers,
                         int64_t input_bytes, int64_t output_bytes, bool recompute);

/// The same of every stage of a split; `cut_bytes` cross its boundaries.
std::vector<StageMemory> stage_memories(const Context& context, const Split& split,
                                        const std::vector<int64_t>& cut_bytes);

}  // namespace penstock::planner
