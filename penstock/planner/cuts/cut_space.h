// The cuts of one model, prepared for any number of searches: all of them where they are few, a
// good selection where they are many, and the means to list those of the others that a search turns
// out to need.
//
//   const CutSpace space(graph, layers);
//   const BoundedPartition best = best_partition(space,
//       [&](const CutStates& states) { return PartitionProblem{.states = states, ...}; });
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "penstock/planner/cuts/cut_lattice.h"
#include "penstock/planner/cuts/cut_states.h"
#include "penstock/planner/cuts/usable_cuts.h"

namespace penstock::planner {

/// Selections of so many cuts are searched first where time or memory is short.
inline constexpr std::array<int64_t, 3> kFewCuts{32, 128, 512};

/// What bounds time and memory; none of it is a clock, so results are reproducible.
struct SearchLimits {
  /// A model with at most that many downsets is searched with all of them.
  int64_t all_states = 6'000;
  int64_t selected_states = 3'000;  ///< a selection of them
  int64_t exact_states = 15'000;    ///< usable cuts among which the best partition is searched
  int64_t steps = 2'000'000;        ///< layers decided while listing downsets once
  int64_t lattice_nodes = 500'000;  ///< of the diagram that lists them
  int64_t bytes = 64'000'000;       ///< of one list of downsets
  int rounds = 3;                   ///< selections made around the best partition found so far
  bool are_lowered = false;         ///< because the budget is small

  /// Those of a search whose stores may take so many bytes; less where the budget is small. 0: no
  /// budget.
  static SearchLimits within(int64_t memory_budget_bytes);
};

class CutSpace {
 public:
  /// Keeps references to both. Throws ConfigError for a graph without layers and when the sums of
  /// all layers pass 2^62.
  CutSpace(const graph::ModelGraph& graph, const std::vector<PlannedLayer>& layers,
           const SearchLimits& limits = {});

  const graph::ModelGraph& graph() const { return graph_; }
  const std::vector<PlannedLayer>& layers() const { return layers_; }
  const SearchLimits& limits() const { return limits_; }

  /// All downsets if complete(), otherwise a selection.
  const std::shared_ptr<const CutStates>& states() const { return states_; }
  bool complete() const { return complete_; }
  /// What it holds, and what one list() may take.
  int64_t bytes() const;
  /// How many downsets the model has; rounded when there are many, nothing when that is unknown.
  std::optional<double> num_downsets() const;

  /// The states of only these downsets.
  std::shared_ptr<const CutStates> states_of(const LayerSets& sets) const;
  /// At most about `most` of them: prefixes of several topological orders, and the cheapest cuts at
  /// many depths.
  LayerSets selection(int64_t most) const;
  /// As selection(), but near the cuts of a partition: prefixes of topological orders that pass
  /// through all of them, and sets that differ from one of them by few layers; only those that
  /// pass.
  LayerSets around(const CutStates& states, const std::vector<int>& ends, const UsableCuts& usable,
                   int64_t most) const;
  /// Depth intervals that cover everything: fewer where there are several tiers.
  const DepthIntervals& depth_cells(const UsableCuts& usable) const {
    return usable.tiers().size() > 1 ? coarse_cells_ : fine_cells_;
  }
  /// For each tier, which of them may have a cut cheap enough for it; all, where that is too hard
  /// to tell.
  std::vector<std::vector<bool>> occupied(const UsableCuts& usable) const;
  /// All downsets that a plan can cut at; nothing when they are more than `most`, or too hard to
  /// find.
  std::optional<LayerSets> list(const UsableCuts& usable, int64_t most) const;

 private:
  size_t affordable(int64_t sets) const;
  void add_prefixes(const std::vector<int>& order, size_t most, LayerSets& sets) const;
  void add_cheapest(size_t most, LayerSets& sets) const;
  void add_neighbours(std::span<const uint64_t> cut, size_t most, const UsableCuts& usable,
                      LayerSets& sets) const;
  bool list_within(const CutLattice::Filter& filter, size_t most, LayerSets& sets) const;

  const graph::ModelGraph& graph_;
  const std::vector<PlannedLayer>& layers_;
  SearchLimits limits_;
  int64_t total_ns_ = 0;  ///< computation of all layers
  DepthIntervals fine_cells_;
  DepthIntervals coarse_cells_;
  std::optional<CutLattice> lattice_;
  std::vector<std::vector<int>> orders_;
  std::shared_ptr<const CutStates> states_;
  bool complete_ = false;
};

}  // namespace penstock::planner
