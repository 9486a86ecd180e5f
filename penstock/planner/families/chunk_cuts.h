// Where to cut when a worker holds several stages ("chunks"): what counts is the sum over each
// worker's chunks. Internal to the planner.
//
// Problem: boundaries of chunks along one order so that the slowest worker, all its chunks
// together, is as fast as possible. Chosen: for interleaved (improved()) and for zb-v, dualpipe-v
// and chimera (best_fold() as well). A local optimum, or exact along the order; O() at each.
//
// Chunks are runs of one topological order. `worker_of[c]` is the worker of chunk c, `speeds[w]`
// its speed.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "penstock/planner/families/layer_runs.h"

namespace penstock::planner {

/// The largest time of a worker's chunks together, for one micro-batch on one copy of the pipeline.
double slowest_worker_ns(const LayerRuns& runs, const std::vector<int>& ends,
                         const std::vector<int>& worker_of, const std::vector<double>& speeds);

/// Moves single boundaries, as far as `may_cut(position)` allows, as long as that makes the slower
/// one of the two workers beside it faster. A local optimum, no more, and never worse than what was
/// given. O(moves * chunks).
std::vector<int> improved(const LayerRuns& runs, std::vector<int> ends,
                          const std::vector<int>& worker_of, const std::vector<double>& speeds,
                          const std::function<bool(int)>& may_cut);

/// A V: worker w of `speeds` holds chunks w and 2p - 1 - w.
struct Fold {
  std::vector<int> ends;  ///< 2p runs; empty when there are too few layers
  double slowest_ns = 0;
  /// No V along this order has a faster slowest worker, whatever its cuts cost.
  double bound_ns = 0;
};

/// The V with the fastest slowest worker: worker by worker from the outside in, for each end of the
/// inner rest the longest beginning that is taken off within a time, and a search for the least
/// such time. Exact along the order to 0.1 %, but that with a longer beginning the rest may be too
/// short to give each worker its two chunks; `bound_ns`, which lets chunks be empty, says what that
/// cost. Orders of more than kMostFoldPositions layers are cut at so many places, evenly spread by
/// computation; then it is no bound, and 0. O(p kMostFoldPositions^2 log(time)).
Fold best_fold(const LayerRuns& runs, const std::vector<double>& speeds);

inline constexpr int kMostFoldPositions = 256;

}  // namespace penstock::planner
