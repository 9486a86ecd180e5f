// Splits for schedules whose workers hold several stages: interleaved, zb-v, dualpipe-v and
// chimera. Internal to the planner.
//
// The workers form c copies of a pipeline of p workers; each worker of a copy holds v chunks of
// layers (a loop, a V, or for dualpipe and chimera one in each direction). Tried: every divisor c
// of the number of workers (at most kMostCopies of them), v = 2, 3 and 4 for interleaved. Cutting
// starts from the best straight split into p v stages, which is exact over all cuts of the model;
// its order of the layers is kept. Then boundaries move for the sums over each worker's chunks
// (chunk_cuts.h): a local optimum, and for a V also the best fold.
#pragma once

#include <string>
#include <vector>

#include "penstock/planner/families/split_finder.h"

namespace penstock::planner {

inline constexpr size_t kMostCopies = 5;
/// Plans name the worker of every stage and replica.
inline constexpr int kMostChunkedWorkers = 4'096;

struct ChunkedSplit {
  Split split;
  /// Share by which the slowest worker may exceed that of the best cut for the same workers and
  /// chunks.
  double optimality_gap = 0;
};

struct ChunkedSplits {
  std::vector<ChunkedSplit> splits;
  std::string reason;  ///< why there are none
};

/// With `faster_than_ns` only splits whose slowest worker computes less per micro-batch.
ChunkedSplits chunked_splits(const Context& context, SplitFinder& finder, plan::Strategy strategy,
                             double faster_than_ns = 0);

}  // namespace penstock::planner
