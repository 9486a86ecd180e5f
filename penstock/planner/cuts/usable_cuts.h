// Which cuts a partition within a given time can have, as far as each cut alone tells. Internal to
// the planner.
//
//   bool useful = usable.passes(states.sums(s).compute_ns, states.cut_bytes(s));
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/planner/cuts/depth_graph.h"

namespace penstock::planner {

/// Necessary conditions on the cuts of a plan whose slowest part takes no longer than some time.
class UsableCuts {
 public:
  /// Cuts cheap enough for a level of the cluster, though not for the one above. Both stages beside
  /// such a cut are in one unit of the level, and so are all stages up to the next cuts on either
  /// side that are cheap enough for more.
  struct Tier {
    int64_t most_bytes = -1;  ///< across the cut
    int unit = 1;             ///< workers in one unit of the level
    double unit_ns = 0;       ///< computation that one of them can do in the time
    DepthIntervals promising = {};
  };
  /// From the outermost level inwards, each with no fewer bytes than the one before.
  const std::vector<Tier>& tiers() const { return tiers_; }

  /// Whether some computation in [least_ns, most_ns] may lie before a cut: some count m of workers
  /// must do it, and the others the rest.
  bool may_split(int64_t least_ns, int64_t most_ns) const;
  /// Whether a cut with that computation before it and those bytes across it meets what can be said
  /// of it alone.
  bool passes(int64_t compute_ns, int64_t bytes) const;

 private:
  friend class CutBounds;

  std::vector<Tier> tiers_;
  std::vector<double> least_ns_;  ///< computation before the cut for m = 1, 2, ...; ascending
  std::vector<double> most_ns_;   ///< ascending
};

}  // namespace penstock::planner
