// All ways to cut a model in two: the downsets of its layer graph (sets of layers that contain
// every predecessor of each member), with the sums that price any stage between two of them. A
// pipeline is a chain of nested downsets from the empty one to the full one.
//
//   const CutStates states(graph, layer_costs);
//   // layers in state j but not in state i, when states.nested(i, j)
//   SegmentCost stage = states.segment(i, j);
//
// Source: PipeDream's released optimiser cuts at antichains; downsets are the same thing, here
// without its missed and duplicated ones.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "penstock/graph/model_graph.h"
#include "penstock/planner/cost/cost_model.h"
#include "penstock/planner/cost/layer_cost.h"
#include "penstock/planner/cost/memory_model.h"

namespace penstock::planner {

inline constexpr int64_t kMaxCutStates = 20'000;

/// Throws ConfigError when the times or the sizes of all layers add up to more than 2^62.
void check_totals(const graph::ModelGraph& graph, const std::vector<PlannedLayer>& layers);

/// Sets of layers, one bit per layer.
class LayerSets {
 public:
  explicit LayerSets(int num_layers) : words_((static_cast<size_t>(num_layers) + 63) / 64) {}
  void add(std::span<const uint64_t> set) {
    bits_.insert(bits_.end(), set.begin(), set.end());
    ++size_;
  }
  void clear() {
    bits_.clear();
    size_ = 0;
  }
  size_t size() const { return size_; }
  size_t words() const { return words_; }
  std::span<const uint64_t> operator[](size_t s) const {
    return {bits_.data() + words_ * s, words_};
  }

 private:
  size_t words_ = 0;
  size_t size_ = 0;
  std::vector<uint64_t> bits_;
};

class CutStates {
 public:
  /// All of them. Throws ConfigError when there are more than kMaxCutStates states (before holding
  /// more than that in memory) or when the sums of all layers pass 2^62. O(states * layers / 64 +
  /// states * edges of the layers added).
  CutStates(const graph::ModelGraph& graph, const std::vector<PlannedLayer>& layers);

  /// All of them, or nothing when there are more than `most`.
  static std::optional<CutStates> all(const graph::ModelGraph& graph,
                                      const std::vector<PlannedLayer>& layers, int64_t most);

  /// Only these downsets, the empty and the full one added where missing, repeated ones once. Sets
  /// that are not downsets are a programmer's error and are not looked for. Throws ConfigError when
  /// the sums of all layers pass 2^62.
  CutStates(const graph::ModelGraph& graph, const std::vector<PlannedLayer>& layers,
            const LayerSets& downsets);

  /// State 0 is the empty set, the last one the whole model; a state comes after all its subsets.
  int size() const { return static_cast<int>(sums_.size()); }
  int full() const { return size() - 1; }
  int num_layers() const { return num_layers_; }
  /// Layers in a state.
  int count(int state) const { return counts_[static_cast<size_t>(state)]; }
  /// What that many states of so many layers take at most, also while they are made.
  static int64_t bytes_of(int64_t states, int64_t layers);
  /// Whether state `small` is a proper subset of state `large`.
  bool nested(int small, int large) const;
  bool contains(int state, LayerId layer) const {
    const auto c = static_cast<size_t>(class_of_[layer.index()]);
    return (bits_[words_ * static_cast<size_t>(state) + c / 64] >> (c % 64) & 1) != 0;
  }
  /// The layers of a state, one bit each. O(layers).
  std::vector<uint64_t> layers(int state) const;

  /// Layers that every state has all or none of are one class, numbered by their first layers. Few,
  /// where the states are few.
  int num_classes() const { return num_classes_; }
  /// The classes of a state, one bit each.
  std::span<const uint64_t> classes(int state) const {
    return {bits_.data() + words_ * static_cast<size_t>(state), words_};
  }
  /// Bytes of the distinct values that layers of the state make and layers outside read.
  int64_t cut_bytes(int state) const { return cut_bytes_[static_cast<size_t>(state)]; }
  const LayerSums& sums(int state) const { return sums_[static_cast<size_t>(state)]; }
  /// Sums over the layers between two nested states.
  LayerSums between(int small, int large) const;
  /// With `recompute` the forward pass is run once more before the backward pass.
  SegmentCost segment(int small, int large, bool recompute = false) const;

 private:
  CutStates() = default;
  std::optional<std::string> fill(const graph::ModelGraph& graph,
                                  const std::vector<PlannedLayer>& layers, int64_t most);
  void append(const class CutCursor& cursor);
  void index();
  void sort_states();
  void find_classes();
  void join_classes();

  int num_layers_ = 0;
  int num_classes_ = 0;
  std::vector<int32_t> class_of_;  ///< per layer
  size_t words_ = 0;
  std::vector<uint64_t> bits_;      ///< `words_` per state, one bit per class
  std::vector<int32_t> first_gap_;  ///< first word that is not all ones
  std::vector<int32_t> end_;        ///< one past the last word that is not zero
  std::vector<int32_t> counts_;     ///< layers in the state
  std::vector<LayerSums> sums_;
  std::vector<int64_t> cut_bytes_;
};

/// The layers between two nested states. Values that only pass the stage by are counted as if they
/// entered and left it.
inline StageMemory stage_memory(const CutStates& states, int small, int large, bool recompute) {
  return {states.between(small, large), states.cut_bytes(small), states.cut_bytes(large),
          recompute};
}

}  // namespace penstock::planner
