// What a split sends: between stages, across each boundary, and through each level of the cluster.
// Internal to the planner.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/plan/plan.h"
#include "penstock/planner/pricing/context.h"

namespace penstock::planner {

struct Traffic {
  std::vector<plan::Link> links;  ///< a value read in two later stages travels to both
  /// Across the boundary after stage k: it crosses each boundary on the way once.
  std::vector<int64_t> cut_bytes;
};

/// `stage_of_layer` as plan::stage_of_layer returns it. O(edges + sum of the stages that values
/// span).
Traffic traffic_of(const Context& context, const std::vector<StageId>& stage_of_layer,
                   size_t num_stages);

/// Bytes per sample through each level of the cluster, innermost first: activations and gradients
/// between stages, each message at every level that it passes on its way, and gradient
/// synchronisation; with `hierarchical`, inside machines, what `ordered` sends there, however the
/// cluster describes them. Levels with a count of 1 are not passed. By reference counts what is
/// handed over. The plan needs stages with places, links, micro-batches and their size. O((links +
/// stages)
/// * levels).
std::vector<double> bytes_per_sample(const plan::Plan& plan, const CostModel& model);

/// CostModel::cut_ns() of the boundary after the stage, of a plan whose links are known. Where
/// those are given each with its coding (PlanOptions::given_boundaries): in the slowest of the
/// codings that cross the boundary between workers.
double coded_cut_ns(const Context& context, const plan::Plan& plan, size_t stage, int64_t bytes,
                    int level);

/// The level that holds the replicas of two neighbouring stages, in whichever order they are
/// placed.
int cut_level(const cluster::Topology& topology, const cluster::WorkerRange& a,
              const cluster::WorkerRange& b);

/// Pairs (x, y) of replicas that exchange a micro-batch (x = b mod `from.count`, y = b mod
/// `to.count` for some b) within one unit of `unit_size` workers, as a share of all such pairs. The
/// ranges are disjoint.
double share_within_unit(const cluster::WorkerRange& from, const cluster::WorkerRange& to,
                         int unit_size);

}  // namespace penstock::planner
