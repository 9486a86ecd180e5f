// Turns a split into a complete plan: sums, links, memory and the simulated throughput. Internal to the planner.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "penstock/planner/cost_model.h"
#include "penstock/planner/cut_states.h"
#include "penstock/planner/memory_model.h"
#include "penstock/planner/planner.h"
#include "penstock/schedule/generate.h"

namespace penstock::planner {

/// The checked input of one planning run.
struct Context {
  Context(const profile::Profile& profile, const cluster::Cluster& cluster, const PlanOptions& options);

  const profile::Profile& profile;
  const cluster::Cluster& cluster;
  const PlanOptions& options;
  int workers = 1;
  int64_t memory_limit_bytes = 0;
  std::unique_ptr<CostModel> model;
  std::vector<profile::LayerCost> costs;  ///< the profile's, at the device's speed
  std::vector<PlannedLayer> layers;
};

/// A split of the layers with what is needed to run it.
struct Split {
  schedule::Kind kind = schedule::Kind::OneFOneB;
  schedule::WeightPolicy policy = schedule::WeightPolicy::Stash;
  std::vector<std::vector<LayerId>> stages;
  std::vector<int> replicas;
};

/// Micro-batches per optimiser step when the user asks for none: one for serial and mp, one per replica for dp, the least common multiple
/// of the replica counts for 1f1b, the smallest multiple of it that reaches the depth for 2bw, and that reaches four per stage for gpipe
/// and 1f1b-flush. Where the multiple would be absurd, as many as there are workers.
int64_t chosen_micro_batches(schedule::Kind kind, const std::vector<int>& replicas);

/// The plan of a split, without alternatives and notes on them. Throws ConfigError when the kind cannot run the split.
plan::Plan price(const Context& context, const Split& split);

}  // namespace penstock::planner
