// A schedule: which worker does what in which order, as data. A generator makes it (compute only)
// and lower() completes it.
//
//   Schedule compute = generate(Strategy::OneFOneB, {.replicas = {1, 1}, .micro_batches = 8,
//       .policy = WeightPolicy::Stash});
//   Schedule full = lower(compute, chain_links(2));
//   std::string text = to_text(full);
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/plan/compensation.h"
#include "penstock/plan/strategy.h"
#include "penstock/plan/weight_policy.h"
#include "penstock/schedule/action.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::schedule {

using plan::Compensation;
using plan::Strategy;
using plan::WeightPolicy;

/// What the steps of a stage cost, in ns or any other unit.
struct StepCosts {
  int64_t forward = 1;
  int64_t input = 1;  ///< I, with R where the stage recomputes
  int64_t again = 0;  ///< of that: R, which needs no gradient
  int64_t weight = 1;
  int64_t message = 0;  ///< to the next stage and back, where it is on another worker
  /// How long of that it occupies each link on its way, per level (ScheduleShape::link_units).
  std::vector<int64_t> busy = {};
  int64_t finish = 0;  ///< SYNC and STEP, after each mini-batch
  bool operator==(const StepCosts&) const = default;
};

/// Micro-batches whose activations a worker that moves them to its host holds at once: one that it
/// computes, one on its way out, one on its way in. Where W is apart from I, all may be there.
inline constexpr int64_t kMostWithOffload = 3;

/// The numbers a generator needs, and who runs what. Every stage steps exactly once per mini-batch,
/// with the mean gradient over the mini-batch, for every split of the model and every number of
/// replicas (docs/schedules.md). Differs from PipeDream, where a stage with r replicas steps once
/// per r mini-batches.
struct ScheduleShape {
  std::vector<int> replicas;  ///< one entry per stage, each >= 1
  int64_t micro_batches = 1;  ///< in the whole schedule
  /// Micro-batches per mini-batch, that is per optimiser step; the last mini-batch may be shorter.
  int64_t accumulate = 1;
  WeightPolicy policy = WeightPolicy::Flush;
  Compensation compensation = Compensation::None;  ///< of the delays that the policy brings
  /// The worker of every replica, stage by stage: stage 0's replicas first. A worker may hold
  /// replicas of several stages (flush only), not two of the same. Empty: workers are numbered in
  /// this order, one replica each. placement.h makes the common placements.
  std::vector<int> worker_of_replica = {};
  /// How many micro-batches more than in 1F1B a stage keeps in flight for each later stage: chosen
  /// for eager-1f1b, of the strategy's own for the others (StrategyTraits::slack), which generate()
  /// and with_placement() fill in.
  int64_t slack = 0;
  /// Per stage: whether it keeps only the inputs of a micro-batch, so that R comes before its B or
  /// I. Empty: no stage does.
  std::vector<bool> recompute = {};
  /// Per stage: whether what F keeps is moved to the memory of the host until B or I needs it, on
  /// workers with more than kMostWithOffload micro-batches in flight, where at least two other
  /// actions that compute come between. Empty: no stage's is.
  std::vector<bool> offload = {};
  /// NORM comes before the steps of each mini-batch.
  bool global_norm = false;
  /// Only for kinds that make their order from costs (StrategyTraits::takes_keep), one entry per
  /// stage: its workers keep no more micro-batches from F to W, summed over all their stages (the
  /// least of the entries counts). 0: the kind's own number. Empty: 0 for all.
  std::vector<int64_t> keep = {};
  /// For the same kinds, one entry per stage; empty: F = I = W and messages take no time.
  /// generate() leaves it out of the schedule.
  std::vector<StepCosts> costs = {};
  /// For the same kinds. Per level of links, innermost first, and worker: its unit below the level,
  /// from 0. A unit has one link up and one down, which serve one message at a time. Empty:
  /// messages share no links.
  std::vector<std::vector<int32_t>> link_units = {};
  /// Per stage of the plan: how many members its teams have. The stages of this shape are then the
  /// members, stage by stage (teams.h). Empty: each stage is whole.
  std::vector<int> teams = {};
  /// For kinds that make their order from costs: it is for mini-batches that follow each other
  /// without a break, not for a single one.
  bool repeats = false;

  int num_stages() const { return static_cast<int>(replicas.size()); }
  int num_workers() const;
  int64_t num_mini_batches() const { return ceil_div(micro_batches, accumulate); }
  MiniBatchId mini_batch_of(MicroBatchId b) const { return MiniBatchId{b.value / accumulate}; }
  bool recomputes(StageId stage) const {
    return stage.index() < recompute.size() && recompute[stage.index()];
  }
  bool offloads(StageId stage) const {
    return stage.index() < offload.size() && offload[stage.index()];
  }
  bool operator==(const ScheduleShape&) const = default;
};

/// No schedule holds more actions than this over all workers, lowered or not (2.4 GB of them); more
/// are refused.
inline constexpr int64_t kMaxActions = 50'000'000;
inline constexpr int kMaxWorkers = 10'000'000;

/// Throws ConfigError for: no stage, replicas < 1, more than kMaxWorkers workers, micro_batches < 0
/// or accumulate < 1, more than `max_actions` compute actions, a slack below 0 or above
/// kMaxActions, a list of recomputing or offloading stages, of costs or of what to keep of another
/// length than the stages, a stage that does both, one that offloads under `current` (which keeps
/// one micro-batch), costs below 0, a `keep` below 0, for 2bw an `accumulate` below
/// pipeline_depth(), for a compensation that does not work with the policy or with what a stage
/// does, and for worker_of_replica that do not number the workers 0, 1, 2... without
/// gaps, put two replicas of a stage on one worker, or put several stages on one worker under
/// another policy than flush. O(replicas), allocates nothing that grows with the other numbers.
void validate(const ScheduleShape& shape, int64_t max_actions = kMaxActions);

struct Schedule {
  std::string kind;  ///< "1f1b", "gpipe", ...; "custom" when read from a file without one
  ScheduleShape shape;
  bool lowered = false;  ///< sends, receives, syncs, steps, frees and versions are present
  std::vector<std::vector<Action>> workers = {};

  int64_t num_actions() const;
  bool operator==(const Schedule&) const = default;
};

/// The pairs of stages (from < to) between which tensors flow; a lowered schedule has messages only
/// along these.
struct StageLink {
  StageId from;
  StageId to;
  auto operator<=>(const StageLink&) const = default;
};
/// 0->1, 1->2, ...
std::vector<StageLink> chain_links(int num_stages);

/// Adds messages, recomputation, moves to the host, gradient sync (stages with more than one
/// replica), norms, optimiser steps and frees, and fills in the weight versions that the policy
/// prescribes. Receives come directly before the compute action that needs them, sends directly
/// after the one that made the data; nothing is sent between two stages whose micro-batch runs on
/// the same worker. Two actions that run together have their receives before both and their sends
/// after both. R comes before the receives of its B or I, so that it runs while the gradients
/// travel. OFFLOAD comes
/// behind the forward and its sends, LOAD before the action that computes last before B or I, if at
/// least one more computes between them and the worker has more than kMostWithOffload micro-batches
/// in flight at some time; otherwise there is neither.
/// SYNC, NORM and STEP of mini-batch t come directly after the worker's last B or W of a mini-batch
/// <= t (a worker with several stages syncs them in ascending order). A worker that has no such B
/// or W makes them before its first action under flush, otherwise before the forward that leads
/// directly to its first backward (docs/schedules.md says why that cannot deadlock). FREE comes
/// after the last use of a version that is no longer the newest, or else directly before the STEP
/// that replaces it; the newest version at the end is never freed. A forward-only schedule (no B or
/// W at all) gets no sync, step or free. Pure. O(actions). Throws ConfigError when `compute` is
/// already lowered, holds actions that do not fit its shape, a link points backwards or to a stage
/// that does not exist, or the result would hold more than kMaxActions actions. Duplicate links
/// count once.
Schedule lower(const Schedule& compute, const std::vector<StageLink>& links);

/// Number of forwards that each stage runs before its first backward in 1F1B: ceil(workers at and
/// after s / replicas of s) (SOSP 2019, 3.2: NOAM for stage 0), with the workers after s counted 1
/// + slack times. O(stages).
std::vector<int64_t> warmup_depths(const ScheduleShape& shape);
/// Micro-batches from the oldest whose backward is pending to the newest whose forward ran, in
/// 1F1B: the largest (warmup_depth - 1) * replicas + 1 over the stages. Without replication that is
/// the number of stages. 2bw needs `accumulate` >= this.
int64_t pipeline_depth(const ScheduleShape& shape);
/// By stage, the mean number of steps between the weights that a forward pass reads and the step of
/// its mini-batch, in steady state. What strategy 1f1b and 2bw have; 0 under flush. O(stages).
std::vector<double> mean_delays(const ScheduleShape& shape);
/// By stage, copies of its weights that the compensation keeps on each worker beside the policy's
/// versions, at most. Empty: none on any. O(stages).
std::vector<int64_t> compensation_copies(const ScheduleShape& shape);

}  // namespace penstock::schedule
