// Lower bounds on the workers that stages take within a given time, linear in the stage, so that
// sums over the layers before each cut state bound any stage between two of them. Internal to the
// planner.
#pragma once

#include <cstddef>
#include <vector>

#include "penstock/planner/cuts/nesting.h"
#include "penstock/planner/partition/partition_search.h"
#include "penstock/planner/partition/placement_units.h"

namespace penstock::planner {

/// Sums of doubles up to ten million workers are exact to far less than this.
inline constexpr double kRounding = 1e-6;

class LoadBound {
 public:
  /// Stages of at least `least` replicas span at least this level, which bounds their times better
  /// than that of any stage.
  struct Tier {
    int least = 1;
    int level = 0;
    double fixed = 0;               ///< workers that every stage takes
    std::vector<double> load = {};  ///< per state, workers that its layers take at least
  };

  LoadBound(const PartitionProblem& problem, const Units& units);
  /// Measures the loads for a time limit and devices of a speed. O(states).
  void measure(double limit_ns, double speed);

  size_t size() const { return tiers_.size(); }
  const Tier& operator[](size_t tier) const { return tiers_[tier]; }
  /// Of stages of any kind.
  double load(int state) const { return tiers_.front().load[static_cast<size_t>(state)]; }

  /// The tier that a stage of at least that many workers is in.
  size_t tier_of(double workers) const {
    size_t t = 0;
    while (t + 1 < tiers_.size() && workers - kRounding > tiers_[t + 1].least - 1) ++t;
    return t;
  }

  /// The least replicas of a stage between two nested states.
  int least_replicas(int i, int j) const;

 private:
  const PartitionProblem& problem_;
  std::vector<Tier> tiers_;
};

/// For every state, what the layers before it take at least within a time, memory and the price of
/// cuts left aside. Entries of states that no partition passes through are above the number of
/// workers.
struct FrontBound {
  std::vector<int> end;      ///< the least end of their place, from worker 0 on, gaps included
  std::vector<int> workers;  ///< the fewest workers, wherever they are
};

/// `most_free` has for every state the most workers that covers of the layers after it leave free,
/// -1 where there is no cover.
FrontBound front_bound(const PartitionProblem& problem, const Units& units, const LoadBound& loads,
                       const Nesting& nesting, const std::vector<int>& most_free, double limit_ns,
                       double speed);

}  // namespace penstock::planner
