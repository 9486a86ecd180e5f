// Turns a split into a complete plan: sums, links, memory and the simulated throughput. Internal to
// the planner.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "penstock/plan/plan.h"
#include "penstock/planner/pricing/context.h"
#include "penstock/planner/pricing/split.h"

namespace penstock::planner {

/// A plan whose prediction may still be missing.
struct Priced {
  plan::Plan plan;
  std::vector<int64_t> cut_bytes;  ///< across the boundary after each stage
  /// Per micro-batch; no schedule is faster: that of the slowest stage, or worker that holds
  /// several, or where steps end with a flush, their share of a round_trip_ns().
  double least_ns = 0;
};

/// Everything that needs no simulation: stages, links, bottleneck, bytes per sample. 0
/// micro-batches: the user's, or chosen.
Priced price_parts(const Context& context, const Split& split, int64_t micro_batches = 0);

/// Shares out the optimiser's state of the stages that need more memory than their workers have, if
/// the options leave that open. False: nothing has changed.
bool shard_where_needed(const Context& context, const Split& split, plan::Plan& plan);

/// The plan of a split, without alternatives and notes on them. Throws ConfigError when the kind
/// cannot run the split.
plan::Plan price(const Context& context, const Split& split, int64_t micro_batches = 0);

/// Time per micro-batch of a stage of a plan under the context's cost model. `worker_of_replica`:
/// the stage's workers, where workers hold several stages.
double stage_ns(const Context& context, const plan::Plan& plan, size_t stage,
                std::span<const int> worker_of_replica = {});

/// The worker whose stages take longest together, for plans whose workers hold several.
struct BusiestWorker {
  int worker = 0;
  double ns = 0;               ///< per micro-batch
  std::vector<size_t> stages;  ///< that it holds
};
BusiestWorker busiest_worker(const Context& context, const plan::Plan& plan);

}  // namespace penstock::planner
