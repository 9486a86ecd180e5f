// The part of one replica of a stage in NORM (fabric/norm_exchange.h): its tied gradients, its part
// of the norm, and what comes of both. Internal to runtime.
#pragma once

#include "penstock/runtime/stage_context.h"
#include "penstock/runtime/sums/stage_sums.h"

namespace penstock::runtime {

/// Between SYNC, or the last B or W, and STEP. Not thread-safe: its worker owns it.
class NormPart {
 public:
  NormPart(const StageContext& context, StageSums& sums);

  /// Adds its tied gradients and its squares to the worker's part.
  void contribute(MiniBatchId mini_batch, NormShare& share);
  void take_tied_sums(MiniBatchId mini_batch, const NormTotals& totals);
  /// Multiplies the gradients of the next step by this.
  void scale_gradients(MiniBatchId mini_batch, double factor);
  /// The next step changes nothing.
  void skip_step(MiniBatchId mini_batch);

 private:
  void contribute_ties(const Tensors& gradients, NormShare& share);
  void contribute_squares(const Tensors& gradients, NormShare& share);

  const StageContext& context_;
  StageSums& sums_;
  bool on_one_gpu_;  ///< with all other workers of the run
};

}  // namespace penstock::runtime
