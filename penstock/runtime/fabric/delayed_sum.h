// Updates of weights that replicas add to a common sum without waiting for each other, within a
// bound: the stale synchronous parallel parameter server (Ho et al., NIPS 2013, section 2). Each
// replica has a copy of the weights to which it adds what it takes; so each copy has all updates up
// to its own round less the bound, its own ones, and perhaps others of up to the bound later. A
// bound of 0 gives the sums of the synchronous methods.
//
//   DelayedSum sum(2, tensors, /*staleness=*/1);
//   sum.give(0, updates, /*last=*/false);
//   if (auto missing = sum.take(0)) add(weights, *missing);
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "penstock/model/layer.h"

namespace penstock::runtime {

/// The group of a replica's last part of a run (Partials), in which it has no update of its own.
inline constexpr int64_t kLastUpdate = -1;

/// Not thread-safe. Each replica gives and takes in turns, the same number of rounds; its last
/// round is the run's.
class DelayedSum {
 public:
  /// Of `count` tensors.
  DelayedSum(int replicas, size_t count, int64_t staleness);

  /// The replica's update of its next round: `count` tensors, undefined where there is none, or
  /// none at all. Copies them once per replica.
  void give(int replica, const model::Tensors& update, bool last);
  /// The sum of the updates that the replica has not taken yet, of rounds up to its own plus the
  /// staleness: `count` tensors, undefined where there were none. Nothing yet while another replica
  /// is more than the staleness behind, or, in the last round, behind at all; and nothing unless
  /// the replica has given.
  std::optional<model::Tensors> take(int replica);

 private:
  struct Replica {
    int64_t rounds = 0;
    bool waits = false;
    bool last = false;
    model::Tensors missing;
    std::multimap<int64_t, model::Tensors> early;  ///< by round: too new for the replica
  };
  void add(Replica& replica, const model::Tensors& update);

  size_t count_;
  int64_t staleness_;
  std::vector<Replica> replicas_;
};

}  // namespace penstock::runtime
