// Which worker blocks which, after an execution that could not finish.
//
// Most blocked workers wait for one other, so they form trees and simple cycles that are followed
// in linear time. A worker at a SYNC, at a NORM or in a computation of its team waits for all of
// its members that have not arrived. All workers at one barrier wait for the same ones, so the
// barrier becomes a node of its own: the graph stays linear in the workers, and shortest cycles
// through barriers are paths between these few nodes.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/verify/execution.h"

namespace penstock::verify {

class WaitGraph {
 public:
  /// `execution` has run and could not finish; it must outlive the graph.
  WaitGraph(const Execution& execution, int32_t num_workers);

  struct Cycle {
    /// Each waits for the next, the last for the first, which is the lowest. Empty when there is
    /// none.
    std::vector<WorkerId> workers;
    /// False when there are so many barriers that the search stopped early.
    bool shortest = true;
  };
  /// The shortest cycle of waits. O(workers) without barriers; with k of them O(k * workers),
  /// stopped after `most_steps`: then the shortest found so far, or an arbitrary one where none was
  /// found yet.
  Cycle shortest_cycle(int64_t most_steps = 20'000'000) const;

  struct Edge {
    WorkerId worker;
    WorkerId waits_for;
  };
  /// Waits for workers whose lists have ended, one per waiting worker, at most `most`.
  std::vector<Edge> abandoned(size_t most) const;

 private:
  /// A SYNC, a NORM or a computation of a team at which a worker waits.
  struct Barrier {
    WorkerId first;      ///< the lowest worker that waits there
    WorkerId ended{-1};  ///< a worker that it waits for and whose list has ended
  };
  /// A path of `length` workers from a barrier, by way of `first`, which has not arrived there, to
  /// the next worker at a barrier.
  struct Way {
    int32_t to = -1;
    int32_t length = 0;
    WorkerId first;
  };

  void find_barriers();
  void find_single_waits();
  void follow_single_waits();
  void find_ways();
  void search_from(int32_t barrier, Cycle& best, int64_t& steps_left) const;
  std::vector<WorkerId> some_cycle() const;
  std::vector<WorkerId> workers_along(const std::vector<Way>& ways) const;

  const Execution& execution_;
  // by worker: the worker that it waits for; -1 at a barrier or when not blocked
  std::vector<int32_t> next_;
  std::vector<int32_t> barrier_of_;  // by worker: the barrier it is at, or -1
  // by worker: the barrier at the end of its chain of waits, or -1
  std::vector<int32_t> reaches_;
  std::vector<int32_t> length_;  // by worker: workers of that chain
  std::vector<Barrier> barriers_;
  std::vector<std::vector<Way>> ways_;  // by barrier
  // the shortest without barriers, or of two workers at barriers that wait for each other
  std::vector<WorkerId> simple_cycle_;
};

}  // namespace penstock::verify
