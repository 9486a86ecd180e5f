#include "penstock/planner/memory_model.h"

#include <algorithm>

#include "penstock/util/arithmetic.h"

namespace penstock::planner {

using schedule::Kind;
using schedule::WeightPolicy;

int64_t MemoryModel::in_flight(int replicas, int64_t workers_from_here) const {
  const int64_t depth = ceil_div(workers_from_here, replicas);
  const int64_t share = micro_batches > 0 ? ceil_div(micro_batches, replicas) : 1;
  switch (kind) {
    case Kind::Serial:
    case Kind::DataParallel:
    case Kind::ModelParallel:
      return 1;
    case Kind::ForwardOnly:
      return 0;
    case Kind::GPipe:
      return share;
    case Kind::OneFOneBFlush:
      return micro_batches > 0 ? std::min(depth, share) : depth;
    case Kind::OneFOneB:
    case Kind::TwoBuffered:
      return depth;
  }
  return depth;
}

int64_t MemoryModel::versions(int replicas, int64_t workers_from_here) const {
  switch (policy) {
    case WeightPolicy::Flush:
    case WeightPolicy::Latest:
      return 1;
    case WeightPolicy::TwoBuffered:
      return 2;
    case WeightPolicy::VerticalSync:
      return max_workers;
    case WeightPolicy::Stash:
      break;
  }
  // Right after a step the other depth - 1 micro-batches in flight are on older versions, one version per share of a step.
  const int64_t share = micro_batches > 0 ? std::max<int64_t>(1, micro_batches / replicas) : 1;
  return ceil_div(in_flight(replicas, workers_from_here) - 1, share) + 1;
}

int64_t MemoryModel::stage_bytes(const LayerSums& sums, int replicas, int64_t workers_from_here) const {
  const double state = static_cast<double>(sums.weight_bytes) * optimizer_state_per_weight;
  const int64_t state_bytes = state >= 9.2e18 ? INT64_MAX : static_cast<int64_t>(state);
  const int64_t weights = saturating_mul(versions(replicas, workers_from_here) + 1, sums.weight_bytes);
  const int64_t stashes = saturating_mul(in_flight(replicas, workers_from_here), sums.stash_bytes);
  return saturating_add(saturating_add(weights, state_bytes), stashes);
}

int MemoryModel::fewest_replicas(const LayerSums& sums, int64_t workers_after, int least, int most) const {
  if (least > most) return 0;
  if (!limited()) return least;
  const auto fits_with = [&](int replicas) { return fits(sums, replicas, replicas + workers_after); };
  if (fits_with(least)) return least;
  if (micro_batches > 0) {
    // Rounding of shares makes the need uneven in the replicas, so look at each.
    for (int replicas = least + 1; replicas <= most; ++replicas) {
      if (fits_with(replicas)) return replicas;
    }
    return 0;
  }
  int low = least + 1;
  int high = most;
  if (low > high || !fits_with(high)) return 0;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (fits_with(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

}  // namespace penstock::planner
