// The checked input of one planning run, and what pricing needs to know about it. Internal to the
// planner.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "penstock/cluster/cluster.h"
#include "penstock/planner/cost/cost_model.h"
#include "penstock/planner/cost/layer_cost.h"
#include "penstock/planner/cost/memory_model.h"
#include "penstock/planner/found_plans.h"
#include "penstock/planner/memory_budget.h"
#include "penstock/planner/plan_options.h"
#include "penstock/planner/time_limit.h"
#include "penstock/profile/profile.h"

namespace penstock::planner {

/// Keeps references to what it is made of. Immutable but for its time, its budget and what was
/// found: one thread at a time.
class Context {
 public:
  /// Of PipeDream's graph.txt, whose layers of unknown kinds are taken to save all.
  static constexpr double kGuessedStash = 0.25;

  /// Throws ConfigError for unusable options, profile or cluster (planner.h).
  Context(const profile::Profile& profile, const cluster::Cluster& cluster,
          const PlanOptions& options, TimeLimit time = {},
          FoundPlans::Clock::time_point begin = FoundPlans::Clock::now());

  const profile::Profile& profile;
  const cluster::Cluster& cluster;
  const PlanOptions& options;
  /// Of the search; a plan that was found is priced all the same.
  const std::unique_ptr<SearchTime> time;
  const std::unique_ptr<MemoryBudget> budget;  ///< of what the search stores
  const std::unique_ptr<FoundPlans> found;     ///< since `begin`
  int workers = 1;
  Choice recompute = Choice::Never;
  Choice shard_optimizer = Choice::Never;
  Choice offload = Choice::Never;
  std::unique_ptr<CostModel> model;
  /// The same where workers wait for every sum; null where they do under `model`.
  std::unique_ptr<CostModel> counting_model;
  std::vector<PlannedLayer> layers;  ///< for a device of speed 1
  /// Workers are CPUs, as the profile's device: the runtime frees gradients layer by layer, and
  /// replicas of one process share weights.
  bool on_processors = false;
  /// No layer's backward_weight_ns is known: half the backward pass of those with weights.
  bool guesses_split = false;
  /// The share by which activations may be smaller than the profile says: 0 where it was measured
  /// or counted, kGuessedStash where it was guessed from sizes of outputs.
  double stash_uncertainty = 0;

  const cluster::Topology& topology() const { return model->topology(); }
  /// Of all boundaries.
  plan::BoundaryCoding boundary() const {
    return options.boundary.value_or(plan::BoundaryCoding{});
  }

  /// What crosses them, but for its bytes.
  plan::CodedValues crossing() const {
    return {.precision = profile.precision, .width = options.token_width};
  }

  /// Whether any worker has a memory limit.
  bool limited() const;
  /// What one worker of the place may use: the user's limit, or the least memory of its devices. 0:
  /// no limit.
  int64_t limit_bytes(const cluster::WorkerRange& place) const;
  /// Of the slowest worker of the place.
  double speed(const cluster::WorkerRange& place) const;
  /// Between a device of the place and the memory of its host; the least of them, 0 where one is
  /// not known.
  int64_t host_bytes_per_s(const cluster::WorkerRange& place) const;
  /// The most micro-batches a step may have: those of the user's mini-batch, or INT64_MAX.
  int64_t most_micro_batches() const;
};

}  // namespace penstock::planner
