// Finds the best split of a profiled model over a cluster.
//
//   PlanResult result = make_plan(profile, cluster, {});
//   if (!result.plan) std::cerr << result.reason << '\n';
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/cluster/cluster.h"
#include "penstock/plan/plan.h"
#include "penstock/planner/plan_options.h"
#include "penstock/planner/plan_result.h"
#include "penstock/profile/profile.h"
#include "penstock/schedule/generate.h"

namespace penstock::planner {

/// Throws ConfigError for unusable options or input (unknown names, no workers, more than
/// kMaxPlannedWorkers, a mini-batch smaller than one micro-batch). Thread-safe, and pure without a
/// time limit. With one: the best plan found by then; a result without a plan may then mean that
/// none was found in time, which its reason says.
PlanResult make_plan(const profile::Profile& profile, const cluster::Cluster& cluster,
                     const PlanOptions& options);

/// Micro-batches per optimiser step that make_plan chooses for this kind when the user gives none
/// and every stage has one worker (dp: one stage has them all).
int64_t usual_micro_batches(plan::Strategy strategy, int workers);

/// A plan for a split given by hand: of each stage its layers, replicas, first worker (-1 for all:
/// one after another) and recompute count. Prices it as make_plan does, without alternatives; a
/// memory limit that it does not keep is noted, not refused. Throws ConfigError as make_plan, and
/// when the stages do not cover the model in order, need more workers than the cluster has or share
/// some.
plan::Plan price_plan(const profile::Profile& profile, const cluster::Cluster& cluster,
                      const std::vector<plan::Stage>& stages, const PlanOptions& options);
/// The same where workers hold several stages: `worker_of_replica` as Plan::worker_of_replica;
/// empty where they do not.
plan::Plan price_placed_plan(const profile::Profile& profile, const cluster::Cluster& cluster,
                             const std::vector<plan::Stage>& stages,
                             const std::vector<int>& worker_of_replica, const PlanOptions& options);
/// The same from layer names and one replica count per stage.
plan::Plan price_plan(const profile::Profile& profile, const cluster::Cluster& cluster,
                      const std::vector<std::vector<std::string>>& stages,
                      const std::vector<int>& replicas, const PlanOptions& options);

/// The plan as it is, split, places, recomputation, schedule and step, with everything predicted
/// anew under another cost model, profile or cluster; `global_norm` as PlanOptions. Throws
/// ConfigError as price_plan.
plan::Plan reprice(const plan::Plan& plan, const profile::Profile& profile,
                   const cluster::Cluster& cluster, const std::string& cost_model,
                   bool global_norm = false);

}  // namespace penstock::planner
