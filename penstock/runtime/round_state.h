// What a replica keeps beside its weights where it makes rounds of steps by itself (DiLoCo,
// Douillard et al. 2023, algorithm 1), for each weight w of the stage:
//
//   start      w at the beginning of the round, theta(t-1), the same on all replicas
//   momentum   of the outer optimiser, the same on all replicas
//
// At the end of a round each of n replicas gives start - w, and all of them compute
//
//   mean = (sum over the replicas, in their order) / n
//   momentum = m momentum + mean,   start -= rate (mean + m momentum),   w = start
//
// which is torch.optim.SGD(nesterov=True), with the bits of one thread on each of them. Who looks
// at the weights between two ends (evaluations, checkpoints) sees closed(): those that the round
// would make if it ended there. Nothing of the training changes by that.
//
//   RoundState round(weights, outer);
//   Tensors changes = round.changes(weights, 0, count);
//   round.finish(weights, 0, sums, /*replicas=*/2, {.learning_rate = 0.7});
#pragma once

#include <cstddef>
#include <vector>

#include "penstock/model/layer.h"
#include "penstock/model/optimizer.h"
#include "penstock/runtime/weight_store.h"

namespace penstock::runtime {

/// Not thread-safe: the replica's worker owns it during a run.
class RoundState {
 public:
  /// A round begins with the newest of these weights, of which it keeps copies. `outer` must
  /// outlive it.
  RoundState(const WeightStore& weights, const model::Optimizer& outer);

  /// By how much the replica has moved weights [first, first + count) away from the round's start:
  /// start - w, in memory of their own.
  Tensors changes(const WeightStore& weights, size_t first, size_t count) const;
  /// The outer step of the weights from number `first` on, whose sums over `replicas` these are;
  /// `weights` and the next round begin there.
  void finish(WeightStore& weights, size_t first, const Tensors& sums, int replicas,
              const model::StepContext& step);
  /// The start after an outer step by these means of the changes, in memory of its own.
  Tensors closed(const Tensors& means, const model::StepContext& step) const;
  /// The replica's weights become these until hide(), which must come before the next step.
  void show(WeightStore& weights, const Tensors& shown);
  void hide(WeightStore& weights);

  const Tensors& start() const { return start_; }
  /// As WeightStore::state().
  const std::vector<Tensors>& state() const { return state_; }
  /// Replaces all by copies of these.
  void load(TensorSpan start, const std::vector<Tensors>& state);
  /// As WeightStore::claim_memory().
  void claim_memory() const;

 private:
  const model::Optimizer& outer_;
  Tensors start_;
  std::vector<Tensors> state_;
  Tensors hidden_;  ///< the replica's own weights while others are shown
};

}  // namespace penstock::runtime
