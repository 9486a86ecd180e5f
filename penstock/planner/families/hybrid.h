// Hybrid parallelism: the first layers data-parallel over most workers, the rest model-parallel
// over a few, and a flush after every step. Internal to the planner.
//
//   stage 0, replicas 0..r-1   F0 F1 F2 .            .  B0 B1 B2 SYNC STEP
//   stage 1, one worker               F0 F1 F2 B0 B1 B2          STEP
//
// Problem: where to cut the model's own order, and how many workers take the rest. Chosen: for
// strategy "hybrid" and its row of the comparison. Every cut is estimated, and the caller simulates
// the best: no optimum is promised.
//
// A step has as many micro-batches as stage 0 has replicas, so each replica runs one, and no
// micro-batch of the next step starts before all weights are new: synchronous SGD without
// pipelining over steps. It runs as 1f1b-flush. Source: A. Krizhevsky, "One weird trick for
// parallelizing convolutional neural networks", 2014, where the dense layers are spread over all
// workers instead; PipeDream compares with hybrid parallelism in SOSP 2019, section 5.3.
#pragma once

#include <vector>

#include "penstock/planner/pricing/pricing.h"

namespace penstock::planner {

/// Splits over all workers, at most `most` of them, the one with the least estimated step time
/// first: every cut of the topological order, 1 to 4 workers for what follows it. Empty with fewer
/// than two workers or layers. O(layers * log(layers) * log(time)).
std::vector<Split> hybrid_splits(const Context& context, size_t most);

}  // namespace penstock::planner
