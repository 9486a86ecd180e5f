// Passes under WeightPolicy::Current: every backward pass goes through the newest micro-batch, on
// the newest weights. Internal to runtime.
#pragma once

#include "penstock/runtime/pass/tape_pass.h"

namespace penstock::runtime {

/// Keeps one set of activations, that of the last F. The stream's last micro-batch may see several
/// B; each but the first runs F again.
class NewestPass : public TapePass {
 public:
  NewestPass(const StageContext& context, StageSums& sums, SegmentEnds ends);

  void recompute(const schedule::Action& action, InFlight& record) override;
  void backward(const schedule::Action& action, InFlight& record) override;
  Activations& activations(InFlight&) override { return newest_; }
  void begin(const schedule::Action& action, InFlight& record, bool in_place) override;

 protected:
  model::LossResult run(const schedule::Action& action, InFlight& record,
                        const BeforeLayer& before_layer) override;

 private:
  /// Runs F of the newest micro-batch again, on the newest weights.
  void run_again(bool with_loss);

  bool recomputes_;  ///< the tape is made by R
  MicroBatchId micro_batch_;
  MiniBatchId mini_batch_;
  model::Tensors inputs_;
  model::Tensors buffers_;  ///< as they were before F
  model::Tensors carried_;  ///< likewise
  Activations newest_;
};

}  // namespace penstock::runtime
