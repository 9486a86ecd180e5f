// The levels of a cluster as placement sees them: only those whose units hold more workers than the
// level below. Internal to the planner.
//
//   Units units(topology, 16);   // 4 x 4: units of 1, 4 and 16 workers
#pragma once

#include <vector>

#include "penstock/cluster/topology.h"

namespace penstock::planner {

class Units {
 public:
  /// Of the first `workers` workers.
  Units(const cluster::Topology& topology, int workers) {
    for (int level = 1; size_.back() < workers; ++level) {
      if (topology.unit_size(level) == size_.back()) continue;
      size_.push_back(topology.unit_size(level));
      level_.push_back(level);
    }
  }

  /// The smallest kind of unit that holds all workers; 0 for a single one. Kind 0 is a worker
  /// alone.
  int top() const { return static_cast<int>(size_.size()) - 1; }
  int size(int kind) const { return size_[static_cast<size_t>(kind)]; }
  int level(int kind) const { return level_[static_cast<size_t>(kind)]; }

  /// Workers of a unit that lie at or before its worker `end` - 1: a range of at most that many
  /// ending there lies in one unit.
  int upto(int end, int kind) const { return (end - 1) % size(kind) + 1; }
  /// Workers of a unit that lie before its worker `begin`.
  int before(int begin, int kind) const { return begin % size(kind); }

 private:
  std::vector<int> size_{1};
  std::vector<int> level_{0};
};

}  // namespace penstock::planner
