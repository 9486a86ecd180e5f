// The gradients of one of several replicas under PowerSGD (low_rank_state.h): SYNC makes two sums,
// of which the second needs the first, so that nothing of them is hidden behind passes.
//
//   replica 0     B  B  SYNC: P -> sum, Q -> sum, gradients    STEP
//   replica 1     B  B  SYNC: P -> sum, Q -> sum, gradients    STEP
//
// Bytes that each of n replicas sends per step, with F numbers in the factors and in what is summed
// whole (plan/low_rank.h): 2(n-1)/n 4 F, as `ordered` sends of whole gradients. Internal to
// runtime.
#pragma once

#include <cstddef>

#include "penstock/runtime/gradient_buffer.h"
#include "penstock/runtime/low_rank_state.h"
#include "penstock/runtime/sums/stage_sums.h"

namespace penstock::runtime {

/// Factors are made in the host's memory: a GPU's gradients are brought there, and the sums back.
class LowRankSums : public StageSums {
 public:
  /// The replica has a LowRankState.
  LowRankSums(const StageContext& context, Grouping grouping);

  void add(const schedule::Action& action, const Backward& backward) override;
  void sync(const schedule::Action& action) override;
  Tensors& ready(MiniBatchId mini_batch) override;
  void step(const schedule::Action& action) override;

 private:
  /// The replica's whole gradients, each weight's in the first of its places.
  Tensors take_own(MiniBatchId mini_batch);
  /// The sums of the first or the second list of low_rank_sums().
  Tensors sum(size_t list, Tensors parts);

  GradientBuffer gradients_;
};

}  // namespace penstock::runtime
