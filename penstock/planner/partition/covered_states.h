// The cut states that have labels, with bounds that rule out many of them at once as the end of a
// stage. Internal to label_search.cpp.
#pragma once

#include <algorithm>
#include <climits>
#include <cstdint>
#include <span>
#include <vector>

#include "penstock/planner/cuts/cut_states.h"
#include "penstock/planner/cuts/nesting.h"
#include "penstock/planner/partition/label.h"
#include "penstock/planner/partition/load_bound.h"
#include "penstock/planner/partition/partition_search.h"

namespace penstock::planner {

// The best of all labels of a state or a block of them, each for itself.
struct Extent {
  int most_free = 0;
  int fewest_workers = INT_MAX / 2;

  void include(const Extent& other) {
    most_free = std::max(most_free, other.most_free);
    fewest_workers = std::min(fewest_workers, other.fewest_workers);
  }
};

// States are looked at in blocks of 64, with bounds that rule out all of them at once.
struct Block {
  /// The least of those with labels.
  double load = kNoTimeLimit;
  /// Likewise; the others are not used.
  LayerSums sums{.weight_bytes = INT64_MAX, .stash_bytes = INT64_MAX};
  Extent extent;
};

class CoveredStates {
 public:
  /// Keeps references to both.
  CoveredStates(const CutStates& states, const LoadBound& loads)
      : states_(states), loads_(loads), promises_(loads.size()) {}

  /// Forgets all. `words` of 64 states each.
  void clear(size_t words) {
    extents_.assign(static_cast<size_t>(states_.size()), {.most_free = -1});
    set_.assign(words, 0);
    blocks_.assign(words, {});
    for (Promises& promises : promises_) {
      promises.state.assign(static_cast<size_t>(states_.size()), 0);
      promises.block.assign(words, -kNoTimeLimit);
    }
  }

  void add(int state, std::span<const Label> labels) {
    const auto s = static_cast<size_t>(state);
    Extent& extent = extents_[s];
    for (const Label& label : labels) extent.include({label.free, label.workers});
    Block& block = blocks_[s / 64];
    block.extent.include(extent);
    block.load = std::min(block.load, loads_.load(state));
    block.sums.weight_bytes = std::min(block.sums.weight_bytes, states_.sums(state).weight_bytes);
    block.sums.stash_bytes = std::min(block.sums.stash_bytes, states_.sums(state).stash_bytes);
    for (size_t t = 0; t < loads_.size(); ++t) {
      promises_[t].state[s] = extent.most_free - loads_[t].load[s] - loads_[t].fixed;
      promises_[t].block[s / 64] = std::max(promises_[t].block[s / 64], promises_[t].state[s]);
    }
    set_[s / 64] |= uint64_t{1} << (s % 64);
  }

  bool contains(int state) const {
    const auto s = static_cast<size_t>(state);
    return (set_[s / 64] >> (s % 64) & 1) != 0;
  }
  size_t num_words() const { return set_.size(); }
  /// Those of block b, one bit each.
  uint64_t word(size_t b) const { return set_[b]; }
  const Block& block(size_t b) const { return blocks_[b]; }
  const Extent& extent(int state) const { return extents_[static_cast<size_t>(state)]; }
  const std::vector<Extent>& extents() const { return extents_; }
  /// At most this many workers stay free, less the load of the state that the stage begins at, when
  /// a stage of a tier ends at that state, or at one of a block.
  double promise(size_t tier, size_t state) const { return promises_[tier].state[state]; }
  double block_promise(size_t tier, size_t b) const { return promises_[tier].block[b]; }

 private:
  // What a stage that ends at a state may leave free, for one tier of stages: the most free workers
  // of a label less the load of the state.
  struct Promises {
    std::vector<double> state;
    std::vector<double> block;  ///< the largest of each block
  };

  const CutStates& states_;
  const LoadBound& loads_;
  std::vector<Extent> extents_;  ///< per state
  StateSet set_;
  std::vector<Block> blocks_;
  std::vector<Promises> promises_;  ///< per tier
};

}  // namespace penstock::planner
