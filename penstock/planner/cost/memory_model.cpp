#include "penstock/planner/cost/memory_model.h"

#include <algorithm>

#include "penstock/plan/weight_rules.h"
#include "penstock/schedule/gradient_sets.h"
#include "penstock/schedule/schedule.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/numbers/rounding.h"

namespace penstock::planner {

int64_t MemoryModel::in_flight(const plan::StrategyTraits& row, int replicas,
                               int64_t workers_from_here) const {
  const int64_t depth = ceil_div(workers_from_here, replicas);
  if (row.is_chunked()) return depth;
  return row.most_kept({.workers = max_workers,
                        .depth = depth,
                        .behind = workers_from_here - replicas,
                        .micro_batches = micro_batches > 0 ? ceil_div(micro_batches, replicas) : 0,
                        .slack = slack,
                        .newest_only = traits(policy).newest_only,
                        .keep = keep});
}

int64_t MemoryModel::in_flight(int replicas, int64_t workers_from_here) const {
  return in_flight(traits(strategy), replicas, workers_from_here);
}

int64_t MemoryModel::versions(int replicas, int64_t workers_from_here) const {
  return versions_for(replicas, in_flight(replicas, workers_from_here));
}

int64_t MemoryModel::versions_for(int replicas, int64_t in_flight) const {
  const int64_t share = micro_batches > 0 ? std::max<int64_t>(1, micro_batches / replicas) : 1;
  const int64_t versions =
      traits(policy).versions({.in_flight = in_flight, .share = share, .workers = max_workers});
  return saturating_add(versions, plan::extra_copies(compensation, versions, in_flight));
}

int64_t MemoryModel::gradient_sets(int replicas) const {
  if (!traits(policy).drains) return 1;
  // Nothing is known of the step before a round of the replicas.
  return schedule::gradient_sets(gradient_groups, replicas,
                                 micro_batches > 0 ? micro_batches : replicas);
}

Held MemoryModel::held(const plan::StrategyTraits& row, int replicas,
                       int64_t workers_from_here) const {
  const int64_t kept = in_flight(row, replicas, workers_from_here);
  const int64_t sets = gradient_sets(replicas);
  return {kept, versions_for(replicas, kept), sets, shard_optimizer ? replicas : 1,
          sets == 1 && !row.splits_backward ? gradients_beside(replicas, kept)
                                            : Held::GradientsBeside::All};
}

Held::GradientsBeside MemoryModel::gradients_beside(int replicas, int64_t in_flight) const {
  const int64_t share = std::max<int64_t>(1, ceil_div(micro_batches, replicas));
  // A worker that has several stages keeps micro-batches of other stages, too.
  if (!frees_gradients || traits(strategy).is_chunked() || in_flight < share)
    return Held::GradientsBeside::All;
  // Replicas may add their gradients as soon as all have made them.
  const bool steps = steps_in_pass && share == 1 && replicas == 1;
  return steps ? Held::GradientsBeside::None : Held::GradientsBeside::AllButFirst;
}

Held MemoryModel::held(int replicas, int64_t workers_from_here) const {
  return held(traits(strategy), replicas, workers_from_here);
}

int64_t MemoryModel::state_bytes(const StageMemory& stage) const {
  return rounded_down(static_cast<double>(stage.sums.weight_bytes) * optimizer_state_per_weight);
}

int64_t MemoryModel::fixed_bytes(const StageMemory& stage, const Held& held) const {
  return saturating_add(
      weight_bytes(stage, held),
      saturating_add(ceil_div(state_bytes(stage), held.state_parts), buffer_bytes(stage)));
}

int64_t MemoryModel::weight_bytes(const StageMemory& stage, const Held& held) const {
  if (short_weight_share > 0) {
    const double versions =
        static_cast<double>(held.versions) * (1 - short_weight_share / 2) + short_weight_share;
    return saturating_add(stage.sums.constant_bytes,
                          rounded_up(static_cast<double>(stage.sums.weight_bytes) *
                                     (versions + static_cast<double>(held.gradient_sets))));
  }
  return saturating_add(
      stage.sums.constant_bytes,
      saturating_mul(saturating_add(held.versions, held.gradient_sets), stage.sums.weight_bytes));
}

int64_t MemoryModel::kept_bytes(const plan::StrategyTraits& row, const StageMemory& stage,
                                int64_t in_flight) const {
  const bool moves = offload && !row.splits_backward;
  int64_t stashes =
      stash_bytes(stage, moves ? std::min(in_flight, schedule::kMostWithOffload) : in_flight);
  if (stage.recompute && row.splits_backward) {
    // What R made is kept until W, which may lag as far as all that is in flight.
    stashes = saturating_mul(in_flight, saturating_add(stage.sums.stash_bytes, stage.input_bytes));
  }
  if (stash_uncertainty > 0)
    stashes = rounded_down(static_cast<double>(stashes) * (1 - stash_uncertainty));
  return stashes;
}

int64_t MemoryModel::held_bytes(const plan::StrategyTraits& row, const StageMemory& stage,
                                const Held& held) const {
  const int64_t weights = saturating_add(weight_bytes(stage, held), stage.working_bytes);
  const int64_t stashes = kept_bytes(row, stage, held.in_flight);
  if (held.gradients == Held::GradientsBeside::All) return saturating_add(weights, stashes);
  // What is counted with the weights is not there yet in the first pass.
  int64_t beside = stashes - stage.sums.weight_bytes;
  if (held.gradients == Held::GradientsBeside::AllButFirst)
    beside = std::max(beside, kept_bytes(row, stage, std::max<int64_t>(held.in_flight - 1, 0)));
  return saturating_add(weights, beside);
}

int64_t MemoryModel::stage_bytes(const StageMemory& stage, const Held& held) const {
  return saturating_add(
      saturating_add(ceil_div(state_bytes(stage), held.state_parts), least_buffer_bytes(stage)),
      held_bytes(traits(strategy), stage, held));
}

int64_t MemoryModel::stash_bytes(const StageMemory& stage, int64_t in_flight) {
  if (!stage.recompute || in_flight < 1) return saturating_mul(in_flight, stage.sums.stash_bytes);
  return saturating_add(saturating_mul(in_flight, stage.input_bytes), stage.sums.stash_bytes);
}

int64_t MemoryModel::buffer_bytes(const StageMemory& stage) {
  return saturating_mul(2, saturating_add(stage.input_bytes, stage.output_bytes));
}

int64_t MemoryModel::least_buffer_bytes(const StageMemory& stage) const {
  const int64_t buffers = buffer_bytes(stage);
  return frees_gradients && policy == plan::WeightPolicy::Flush ? buffers - stage.input_bytes
                                                                : buffers;
}

int MemoryModel::fewest_replicas(const StageMemory& stage, int64_t workers_after, int least,
                                 int most, int64_t limit) const {
  if (least > most) return 0;
  if (limit <= 0) return least;
  // The innermost loop of a search under a memory limit: what no count changes is worked out once.
  const plan::StrategyTraits& row = traits(strategy);
  const int64_t state = state_bytes(stage);
  const int64_t buffers = least_buffer_bytes(stage);
  if (saturating_add(ceil_div(state, shard_optimizer ? most : 1), buffers) > limit) return 0;
  const auto fits_with = [&](int64_t replicas) {
    const Held kept = held(row, static_cast<int>(replicas), replicas + workers_after);
    const int64_t constant = saturating_add(ceil_div(state, kept.state_parts), buffers);
    return saturating_add(constant, held_bytes(row, stage, kept)) <= limit;
  };
  const auto first_that_fits = [&](int64_t low,
                                   int64_t high) {  // where the need falls and high fits
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (fits_with(middle)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return static_cast<int>(low);
  };
  if (fits_with(least)) return least;
  int64_t low = int64_t{least} + 1;
  if (traits(policy).versions_by_share && micro_batches > 0) {
    // While a replica's share of a step still falls, more replicas may need more versions. The need
    // only changes where the depth or the share does; past that it falls, as it always does under
    // the other policies. Between such changes only a part of the optimiser's state falls.
    while (low <= most && micro_batches / low > 1) {
      const int64_t next = next_change(low, workers_after);
      const int64_t last = shard_optimizer ? std::min<int64_t>(next - 1, most) : low;
      if (fits_with(last)) return first_that_fits(low, last);
      low = next;
    }
  }
  if (low > most || !fits_with(most)) return 0;
  return first_that_fits(low, most);
}

int64_t MemoryModel::next_change(int64_t replicas, int64_t workers_after) const {
  const int64_t share_falls = micro_batches / (micro_batches / replicas) + 1;
  const int64_t deeper = ceil_div(workers_after, replicas);
  return deeper <= 1 ? share_falls : std::min(share_falls, ceil_div(workers_after, deeper - 1));
}

}  // namespace penstock::planner
