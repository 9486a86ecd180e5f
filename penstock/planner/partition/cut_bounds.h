// What any plan must respect, whichever cuts it uses: how fast it can be at best, and which cuts a
// plan within a given time can have. Internal to the planner.
//
//   const CutBounds bounds(problem, layers);
//   double least_ns = bounds.least_bottleneck_ns();
//   // else no better plan cuts there
//   bool useful = bounds.within(best_ns).passes(states.sums(s).compute_ns, states.cut_bytes(s));
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/planner/cuts/usable_cuts.h"
#include "penstock/planner/partition.h"

namespace penstock::planner {

class CutBounds {
 public:
  /// `layers` are those of the problem's states. O(layers + workers).
  CutBounds(const PartitionProblem& problem, const std::vector<PlannedLayer>& layers);

  /// No partition of the problem has a smaller bottleneck: the computation shared evenly over all
  /// workers, and each layer that takes longer than that on its own with the replicas that suit it
  /// best.
  double least_bottleneck_ns() const { return least_bottleneck_ns_; }

  /// The cuts that a partition with a bottleneck of at most `limit_ns` can have. Keeps no
  /// reference.
  UsableCuts within(double limit_ns) const;

  /// Forgets which layers lie before a cut and keeps only how much computation: `cells` are depth
  /// intervals that cover everything, `occupied` tells for each tier which of them may have a cut
  /// cheap enough for it. Whether stages between such cells can add up to a partition within the
  /// time; if so, the tiers are told which depths can be part of one. O(tiers * cells^3 + workers),
  /// for one tier O(cells^2 + workers).
  bool narrow(UsableCuts& usable, double limit_ns, const DepthIntervals& cells,
              const std::vector<std::vector<bool>>& occupied) const;

  /// Levels of the cluster that a cut can be at.
  int num_levels() const;

  /// Whether no partition at all fits into the memory: a layer alone is too large for a worker, or
  /// all weights for all workers. False says nothing.
  bool cannot_fit() const;

 private:
  double slowest_layer_ns() const;
  int64_t replicas_for(double compute_ns, double limit_ns) const;
  bool single_stage_within(double limit_ns) const;
  int64_t most_bytes_within(double limit_ns, int level) const;
  double largest_unit(int level) const;
  bool layer_cannot_fit(const PlannedLayer& layer, int64_t limit) const;

  const PartitionProblem& problem_;
  const std::vector<PlannedLayer>& layers_;
  LayerSums total_;
  std::vector<double> speed_before_;  ///< speeds of the first m workers added up
  double fastest_ = 0;
  /// By which a stage may be cheaper than its computation says, for rounding.
  double slack_ns_ = 0;
  double least_bottleneck_ns_ = 0;
};

}  // namespace penstock::planner
