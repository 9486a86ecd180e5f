// A set of layers that changes one layer at a time, with the sums over it and the bytes that leave
// it kept up to date. Internal to the planner.
//
//   CutCursor cursor(graph, layers);
//   cursor.add(0);
//   int64_t bytes = cursor.cut_bytes();  // what layer 0 makes and others read
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "penstock/graph/model_graph.h"
#include "penstock/planner/cost/layer_cost.h"

namespace penstock::planner {

class CutCursor {
 public:
  /// Starts with the empty set. Keeps references to both. O(layers + edges).
  CutCursor(const graph::ModelGraph& graph, const std::vector<PlannedLayer>& layers);

  /// The layer must be outside / inside. O(edges of the layer).
  void add(int layer) { change(layer, +1); }
  void remove(int layer) { change(layer, -1); }
  /// Makes the set that of `bits`. O(layers / 64 + edges of the layers that differ).
  void move_to(std::span<const uint64_t> bits);

  bool contains(int layer) const {
    return (bits_[static_cast<size_t>(layer) / 64] >> (layer % 64) & 1) != 0;
  }
  /// Whether all predecessors of the layer are in the set.
  bool has_predecessors_of(int layer) const { return missing_[static_cast<size_t>(layer)] == 0; }
  /// Whether the set without the layer, or with it, is still a downset, given that it is one.
  bool may_remove(int layer) const;
  bool may_add(int layer) const { return !contains(layer) && has_predecessors_of(layer); }

  int count() const { return count_; }
  const LayerSums& sums() const { return sums_; }
  /// Bytes of the distinct values that layers of the set make and layers outside read.
  int64_t cut_bytes() const { return cut_bytes_; }
  const std::vector<uint64_t>& bits() const { return bits_; }

 private:
  void change(int layer, int sign);

  const graph::ModelGraph& graph_;
  const std::vector<PlannedLayer>& layers_;
  /// Distinct, per layer, without the model's own.
  std::vector<std::vector<graph::ValueRef>> inputs_;
  std::vector<int> missing_;  ///< predecessors not in the set, per layer
  /// Layers outside the set that read each output.
  std::vector<std::vector<int>> readers_left_;
  std::vector<uint64_t> bits_;
  int count_ = 0;
  LayerSums sums_;
  int64_t cut_bytes_ = 0;
};

/// The distinct values a layer reads, without the model's own inputs, ascending.
std::vector<graph::ValueRef> distinct_inputs(const graph::LayerNode& layer);

}  // namespace penstock::planner
