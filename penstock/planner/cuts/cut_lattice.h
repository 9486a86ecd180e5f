// The downsets of a layer graph without listing them: a diagram in which every path is one downset,
// and every node knows the least bytes that its paths still add to the cut. So the downsets with
// cheap cuts can be listed one after another, however many others there are.
//
//   const auto lattice = CutLattice::build(graph, layers, 1'000'000);
//   LayerSets sets(graph.num_layers());
//   // all with at most 1 MB across the cut
//   if (lattice && lattice->list({.most_bytes = 1'000'000}, limits, sets)) ...
//
// Layers are decided one by one, in or out, in a topological order. Two beginnings meet in one node
// when they leave the same choices and the same costs for the rest: what matters is which undecided
// layers already miss a predecessor, and which values of layers inside already cross. Both concern
// the frontier of the order only, so branches that run side by side add up instead of multiplying.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "penstock/graph/model_graph.h"
#include "penstock/planner/cuts/cut_states.h"

namespace penstock::planner {

class CutLattice {
 public:
  /// Which downsets to list.
  struct Filter {
    int64_t most_bytes = INT64_MAX;  ///< across the cut
    /// Whether some computation (ns, of the layers inside) in [least, most] is wanted; every one if
    /// empty.
    std::function<bool(int64_t least, int64_t most)> wanted_compute;
  };
  struct Limits {
    size_t sets = 0;    ///< give up when there are more
    int64_t steps = 0;  ///< or after that many layers decided
  };

  /// Nothing where the diagram would have more than `max_nodes` nodes, or more than 256 things to
  /// remember at once. O(nodes * edges of a layer).
  static std::optional<CutLattice> build(const graph::ModelGraph& graph,
                                         const std::vector<PlannedLayer>& layers,
                                         int64_t max_nodes);

  /// How many downsets there are, rounded; infinite when that is not a number.
  double count() const { return nodes_.front().count; }
  /// What it holds, and what building it takes.
  int64_t bytes() const {
    constexpr size_t kWhileBuilt = 4;
    return static_cast<int64_t>(kWhileBuilt * nodes_.capacity() * sizeof(Node));
  }

  /// Adds the downsets that pass the filter to `sets`; false when it gave up, after adding some of
  /// them. The empty and the full set count as any other. Deterministic. O(steps).
  bool list(const Filter& filter, Limits limits, LayerSets& sets) const;

  /// The downset with the fewest bytes across its cut among those that pass the filter, as far as
  /// `steps` let it look; empty if it saw none.
  std::vector<uint64_t> cheapest(const Filter& filter, int64_t steps) const;

 private:
  struct Node {
    int32_t in = -1;   ///< the next node when the layer is taken, -1 when it cannot be
    int32_t out = -1;  ///< -1 at the end
    int64_t in_bytes = 0;
    int64_t out_bytes = 0;
    int64_t least_bytes = 0;   ///< that any path from here adds
    int64_t most_compute = 0;  ///< that any path from here adds
    double count = 0;          ///< paths from here
  };
  friend class CutLatticeBuilder;

  template <typename Found>
  bool walk(const Filter& filter, int64_t steps, const Found& found) const;

  std::vector<int> order_;           ///< layers
  std::vector<int64_t> compute_ns_;  ///< by position in the order
  std::vector<Node> nodes_;          ///< the first is the start
};

}  // namespace penstock::planner
