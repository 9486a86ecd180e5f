// Memory of one worker of a stage, as far as it is known while the split is still being searched. The search only ever needs what lies at
// and after the stage; plans report the simulator's exact peaks instead (docs/planner.md, "Memory").
#pragma once

#include <cstdint>

#include "penstock/planner/cut_states.h"
#include "penstock/schedule/generate.h"

namespace penstock::planner {

struct MemoryModel {
  schedule::Kind kind = schedule::Kind::OneFOneB;
  schedule::WeightPolicy policy = schedule::WeightPolicy::Stash;
  int64_t limit_bytes = 0;    ///< per worker; 0: none
  int64_t micro_batches = 0;  ///< per step; 0: not known yet, one round of the stage's replicas
  int max_workers = 1;
  double optimizer_state_per_weight = 1.0;

  bool limited() const { return limit_bytes > 0; }

  /// Micro-batches that one of `replicas` workers holds at once, with `workers_from_here` workers at and after the stage.
  int64_t in_flight(int replicas, int64_t workers_from_here) const;

  /// Weight versions held at once; for vertical-sync an upper bound, since it depends on the stages before.
  int64_t versions(int replicas, int64_t workers_from_here) const;

  /// Versions, gradient, optimiser state and stashes. Never rises when `workers_from_here` falls. Saturates.
  int64_t stage_bytes(const LayerSums& sums, int replicas, int64_t workers_from_here) const;

  bool fits(const LayerSums& sums, int replicas, int64_t workers_from_here) const {
    return !limited() || stage_bytes(sums, replicas, workers_from_here) <= limit_bytes;
  }

  /// The smallest count in [least, most] of a stage in front of `workers_after` workers that may fit, or 0. Counts below it do not fit.
  int fewest_replicas(const LayerSums& sums, int64_t workers_after, int least, int most) const;
};

}  // namespace penstock::planner
