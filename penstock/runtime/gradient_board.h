// What the replicas of a stage that have one copy of their weights in memory give each other: the
// gradient of each weight as soon as it is made. When all have given it, each may take it and step
// its own share of the weight. Internal to runtime; sums/shared_weights.h says more.
//
//   board.give(replica, weight, std::move(gradient));
//   while (const auto complete = board.next(replica)) {
//     step(complete->first, complete->second);          // the replica's share of the weight
//     board.done(complete->first);
//   }
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "penstock/model/layer.h"
#include "penstock/runtime/fabric/weight_shares.h"
#include "penstock/util/process/mutex.h"

namespace penstock::runtime {

/// Of one stage during one run. Thread-safe; nothing blocks.
class GradientBoard {
 public:
  /// `shares`: per replica.
  explicit GradientBoard(std::vector<WeightShare> shares);

  const WeightShare& share_of(int replica) const { return shares_[static_cast<size_t>(replica)]; }
  /// The replica's gradient of a weight, float32 and in memory of its own; undefined: it has none.
  /// Once per mini-batch. From then on others may write to the replica's weight: no pass of the
  /// mini-batch reads it any more.
  void give(int replica, size_t weight, at::Tensor gradient);
  /// A weight that all have given and of which the replica has a share, each once; nothing: there
  /// is none now. The gradients by replica.
  std::optional<std::pair<size_t, model::Tensors>> next(int replica);
  /// The replica has done with it: what all have done with is freed.
  void done(size_t weight);

 private:
  struct Entry {
    model::Tensors given;  ///< by replica
    int missing = 0;       ///< replicas that have not given theirs
    int users = 0;         ///< with a share, and not done
  };

  const std::vector<WeightShare> shares_;
  Mutex mutex_;
  std::vector<Entry> entries_ GUARDED_BY(mutex_);                ///< by weight
  std::vector<std::deque<size_t>> complete_ GUARDED_BY(mutex_);  ///< by replica: weights
};

}  // namespace penstock::runtime
