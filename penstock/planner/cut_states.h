// All ways to cut a model in two: the downsets of its layer graph (sets of layers that contain every predecessor of each member), with the
// sums that price any stage between two of them. A pipeline is a chain of nested downsets from the empty one to the full one.
//
//   const CutStates states(graph, layer_costs);
//   SegmentCost stage = states.segment(i, j);   // layers in state j but not in state i, when states.nested(i, j)
//
// Source: PipeDream's released optimiser cuts at antichains; downsets are the same thing, here without its missed and duplicated ones.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/graph/model_graph.h"
#include "penstock/planner/cost_model.h"

namespace penstock::planner {

/// What the planner needs of one layer, already scaled to the device's speed.
struct PlannedLayer {
  int64_t compute_ns = 0;
  int64_t step_ns = 0;
  int64_t weight_bytes = 0;
  int64_t stash_bytes = 0;
  std::vector<int64_t> output_bytes;
};

/// Sums over a set of layers.
struct LayerSums {
  int64_t compute_ns = 0;
  int64_t step_ns = 0;
  int64_t weight_bytes = 0;
  int64_t stash_bytes = 0;
};

/// Throws ConfigError when the times or the sizes of all layers add up to more than 2^62.
void check_totals(const graph::ModelGraph& graph, const std::vector<PlannedLayer>& layers);

class CutStates {
 public:
  /// Throws ConfigError when there are more than kMaxCutStates states (before holding more than that in memory) or when the sums of all
  /// layers pass 2^62. O(states * layers / 64 + states * edges of the layers added).
  CutStates(const graph::ModelGraph& graph, const std::vector<PlannedLayer>& layers);

  /// State 0 is the empty set, the last one the whole model; a state comes after all its subsets.
  int size() const { return static_cast<int>(sums_.size()); }
  int full() const { return size() - 1; }
  int num_layers() const { return num_layers_; }
  /// Whether state `small` is a proper subset of state `large`.
  bool nested(int small, int large) const;
  bool contains(int state, LayerId layer) const;
  /// Bytes of the distinct values that layers of the state make and layers outside read.
  int64_t cut_bytes(int state) const { return cut_bytes_[static_cast<size_t>(state)]; }
  const LayerSums& sums(int state) const { return sums_[static_cast<size_t>(state)]; }
  /// Sums over the layers between two nested states.
  LayerSums between(int small, int large) const;
  SegmentCost segment(int small, int large) const;

 private:
  friend class CutEnumeration;

  int num_layers_ = 0;
  size_t words_ = 0;
  std::vector<uint64_t> bits_;      ///< `words_` per state
  std::vector<int32_t> first_gap_;  ///< first word that is not all ones
  std::vector<int32_t> end_;        ///< one past the last word that is not zero
  std::vector<int32_t> counts_;     ///< layers in the state
  std::vector<LayerSums> sums_;
  std::vector<int64_t> cut_bytes_;
};

}  // namespace penstock::planner
