// Finds the best split of a profiled model over a cluster.
//
//   PlanResult result = make_plan(profile, cluster, {});
//   if (!result.plan) std::cerr << result.reason << '\n';
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "penstock/cluster/cluster.h"
#include "penstock/plan/plan.h"
#include "penstock/profile/profile.h"

namespace penstock::planner {

struct PlanOptions {
  /// "auto" takes the partitioner's own choice (1f1b, or dp / serial when a single stage is best) and, under the "penstock" cost model,
  /// replaces a pipeline that the simulator finds clearly slower than serial, dp or a straight 1f1b by that. Otherwise a schedule kind by
  /// name, for which the best partition of that family is found: one stage for serial and dp, one worker per stage for mp and gpipe, at
  /// least two stages (of any replicas) for 1f1b, 1f1b-flush and 2bw where workers and layers allow it.
  std::string strategy = "auto";
  std::string weights;                  ///< weight policy by name; empty: the kind's default
  std::string cost_model = "penstock";  ///< "penstock" or "sosp2019" (cost_model.h)
  bool straight = false;                ///< one worker per stage, as many stages as workers (or layers, if fewer)
  int64_t micro_batches = 0;            ///< per mini-batch; 0: chosen
  int64_t memory_limit_bytes = 0;       ///< per worker; 0: the cluster's device memory, or none
};

struct PlanResult {
  std::optional<plan::Plan> plan;
  std::string reason;  ///< why there is none: names the binding stage and layer and the memory that would do
};

/// Throws ConfigError for unusable options or input (unknown names, no workers, more than kMaxPlannedWorkers, more than kMaxCutStates cut
/// states). Pure; thread-safe.
PlanResult make_plan(const profile::Profile& profile, const cluster::Cluster& cluster, const PlanOptions& options);

/// A plan for a split given by hand: `stages` lists layer names per stage, `replicas` one count per stage. Prices it as make_plan does,
/// without alternatives; a memory limit that it does not keep is noted, not refused. Throws ConfigError as make_plan, and when the stages
/// do not cover the model in order or need more workers than the cluster has.
plan::Plan price_plan(const profile::Profile& profile, const cluster::Cluster& cluster, const std::vector<std::vector<std::string>>& stages,
                      const std::vector<int>& replicas, const PlanOptions& options);

inline constexpr int64_t kMaxCutStates = 20'000;
inline constexpr int kMaxPlannedWorkers = 4'096;
inline constexpr int64_t kMaxMicroBatchesPerStep = 1'000'000;

}  // namespace penstock::planner
