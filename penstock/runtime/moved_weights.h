// The weights that passes read where a compensation moves them (schedule::Action::ahead,
// plan/compensation.h). Internal to runtime; pass/pass_weights.h makes them.
//
//   moved.forward(action);                // what F reads: leaf tensors
//   moved.before_backward(action);        // B goes through them as they are then
//   moved.before_step(action.version);    // last chance to see that version as the latest
#pragma once

#include "penstock/model/layer.h"
#include "penstock/schedule/action.h"
#include "penstock/util/ids.h"

namespace penstock::runtime {

/// Not thread-safe: its worker owns it. Where sums go on in the background, it waits for them.
class MovedWeights {
 public:
  virtual ~MovedWeights() = default;
  MovedWeights() = default;
  MovedWeights(const MovedWeights&) = delete;
  MovedWeights& operator=(const MovedWeights&) = delete;

  /// Of F or R; valid until the next call.
  virtual const model::Tensors& forward(const schedule::Action& action) = 0;
  /// B, I or W follows.
  virtual void before_backward(const schedule::Action&) {}
  /// STEP follows, which replaces the version.
  virtual void before_step(WeightVersion) {}
};

}  // namespace penstock::runtime
