// Which cut states contain which, for all at once. Internal to the planner.
//
//   const Nesting nesting(states);
//   nesting.supersets(i, row);   // one bit per state
//
// A downset contains another one when it contains its last layers, so a row is the conjunction of a
// few sets of states, one for each of those layers: as many as there are branches side by side.
// Works for any family of downsets. O(states / 64 * branches) for a row.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/planner/cuts/cut_states.h"
#include "penstock/planner/time_limit.h"

namespace penstock::planner {

/// A set of states, 64 to a word.
using StateSet = std::vector<uint64_t>;

class Nesting {
 public:
  /// O((states + layers) * layers * branches / 64) as a rule, O(states * layers * layers / 64) at
  /// most.
  /// Throws OutOfTime.
  explicit Nesting(const CutStates& states, const TimeLimit& time = {});
  /// What that of so many states of so many classes takes at most while it is made; the lists of
  /// layers are not counted.
  static int64_t bytes_of(int64_t states, int64_t classes);
  /// What it holds.
  int64_t bytes() const;

  size_t num_words() const { return words_; }
  /// The states that properly contain a state.
  void supersets(int state, StateSet& row) const;
  /// The states that a state properly contains.
  void subsets(int state, StateSet& row) const;

 private:
  using LayerSet = std::vector<uint64_t>;

  static std::vector<LayerSet> always_with(const CutStates& states, const TimeLimit& time);
  // `to[l]`: what is in every state with layer l. `from[l]`: the layers that are in no state
  // without l.
  void find_generators(const CutStates& states, const std::vector<LayerSet>& to,
                       const std::vector<LayerSet>& from, const TimeLimit& time);

  size_t words_ = 0;
  int size_ = 0;
  std::vector<StateSet> with_layer_;               ///< per layer, the states that contain it
  std::vector<std::vector<int32_t>> last_layers_;  ///< per state: states with these contain it
  /// Per state: states without these are contained in it.
  std::vector<std::vector<int32_t>> missing_layers_;
};

}  // namespace penstock::planner
