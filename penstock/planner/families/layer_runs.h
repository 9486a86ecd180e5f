// The layers in a topological order, cut into runs: what families need whose best split is looked
// for along one order. Internal to the planner.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/planner/pricing/context.h"

namespace penstock::planner {

class LayerRuns {
 public:
  /// In the model's own order. O(layers + edges).
  explicit LayerRuns(const Context& context);
  /// In another topological order.
  LayerRuns(const Context& context, std::vector<LayerId> order);

  /// The layer at a position of the order.
  LayerId layer(int position) const { return order_[static_cast<size_t>(position)]; }

  int num_layers() const { return static_cast<int>(compute_ns_.size()) - 1; }
  /// Sums over layers [begin, end), for a device of speed 1.
  int64_t compute_ns(int begin, int end) const { return between(compute_ns_, begin, end); }
  int64_t forward_ns(int begin, int end) const { return between(forward_ns_, begin, end); }
  int64_t step_ns(int begin, int end) const { return between(step_ns_, begin, end); }
  int64_t weight_bytes(int begin, int end) const { return between(weight_bytes_, begin, end); }
  int64_t stash_bytes(int begin, int end) const { return between(stash_bytes_, begin, end); }
  /// Bytes of the distinct values that the first `end` layers make and later ones read.
  int64_t cut_bytes(int end) const { return cut_bytes_[static_cast<size_t>(end)]; }

  /// Ends of `parts` runs, none empty, that cover the layers from `begin` on with the least
  /// computation in the largest. Needs 1 <= parts <= num_layers() - begin. O(parts * log(layers) *
  /// log(time)).
  std::vector<int> balanced(int begin, int parts) const;

  /// Ends of `parts` runs, none empty, with the least time in the slowest run or cut: a run takes
  /// its computation and its optimiser step, the cut behind the first `end` layers cut_ns[end].
  /// Needs 1 <= parts <= num_layers() == cut_ns.size() - 1. O(parts * layers^2) at most, much less
  /// where runs are short.
  std::vector<int> cheapest(int parts, const std::vector<double>& cut_ns) const;

 private:
  static int64_t between(const std::vector<int64_t>& sums, int begin, int end) {
    return sums[static_cast<size_t>(end)] - sums[static_cast<size_t>(begin)];
  }
  std::vector<int> filled(int begin, int parts, int64_t limit_ns) const;

  std::vector<LayerId> order_;
  /// Sums of the first layers.
  std::vector<int64_t> compute_ns_, forward_ns_, step_ns_, weight_bytes_, stash_bytes_;
  std::vector<int64_t> cut_bytes_;
};

}  // namespace penstock::planner
