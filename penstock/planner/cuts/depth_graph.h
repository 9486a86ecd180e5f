// Partitions as paths over depths: which layers lie before a cut is forgotten, only how much
// computation is kept. What has no path here has no partition. Internal to the planner.
//
//   DepthGraph graph(cells, total_ns, workers, replicas_for);
//   bool possible = graph.find_paths(occupied);
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace penstock::planner {

/// Computation before a cut (ns), in ascending, disjoint, closed intervals.
using DepthIntervals = std::vector<std::pair<int64_t, int64_t>>;
bool meets(const DepthIntervals& intervals, int64_t least_ns, int64_t most_ns);

class DepthGraph {
 public:
  /// `cells` cover [0, total_ns]; `replicas_for` gives the fewest replicas of a stage with some
  /// computation, more than `workers` if there can be none. O(cells^2).
  DepthGraph(const DepthIntervals& cells, int64_t total_ns, int workers,
             const std::function<int64_t(double)>& replicas_for);

  /// A single stage with everything is possible.
  void allow_single_stage() { single_stage_ = true; }

  /// Stages with cuts between them in these cells may follow one another where they take no more
  /// than `unit` workers together. From the innermost units outwards. O(cells^3).
  void join_within_units(const std::vector<bool>& occupied, int unit);

  /// Whether cuts in these cells, and what was joined between them, lead from the first layer to
  /// the last with all workers. O(cells^2).
  bool find_paths(const std::vector<bool>& occupied);

  /// After find_paths: the depths at which cuts of a partition can lie; only those of the last
  /// call, or any others between them as well.
  DepthIntervals promising(bool last_call_only) const;

 private:
  int64_t& steps(size_t from, size_t to) { return steps_[from * nodes_ + to]; }
  int64_t steps(size_t from, size_t to) const { return steps_[from * nodes_ + to]; }

  // Node 0 is the empty set, nodes 1 to cells the cells, the last one the full set.
  const DepthIntervals& cells_;
  const int64_t workers_;
  const size_t nodes_;
  bool single_stage_ = false;
  /// Fewest workers between two nodes, without cuts of the outer tiers.
  std::vector<int64_t> steps_;
  std::vector<int64_t> single_;  ///< the same with a single stage
  std::vector<int64_t> before_;
  std::vector<int64_t> after_;
};

}  // namespace penstock::planner
