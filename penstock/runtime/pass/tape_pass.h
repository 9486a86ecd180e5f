// Passes by a tape of autograd, one for each micro-batch. Internal to runtime.
#pragma once

#include <utility>

#include "penstock/runtime/pass/pass.h"
#include "penstock/runtime/stage_tape.h"

namespace penstock::runtime {

/// Its successors change what is kept for the backward pass: nothing but the inputs (below), the
/// newest micro-batch (newest_pass.h), memory of the host (offloaded_pass.h).
class TapePass : public Pass {
 public:
  /// `ends`: how the tapes are cut.
  TapePass(const StageContext& context, StageSums& sums, SegmentEnds ends)
      : context_(context), sums_(sums), ends_(std::move(ends)) {}

  model::LossResult forward(const schedule::Action& action, InFlight& record) override;
  void backward(const schedule::Action& action, InFlight& record) override;
  void backward_inputs(const schedule::Action& action, InFlight& record) override;
  void backward_weights(const schedule::Action& action, InFlight& record) override;

  const SegmentEnds& segment_ends() const { return ends_; }
  /// What B of the micro-batch goes through.
  virtual Activations& activations(InFlight& record) { return record.activations; }
  /// Before F: keeps what another F of the micro-batch needs. `in_place`: F writes to the replica's
  /// buffers, instead of replacing them.
  virtual void begin(const schedule::Action&, InFlight&, bool /*in_place*/) {}

 protected:
  /// F itself, when the replica's buffers are its own.
  virtual model::LossResult run(const schedule::Action& action, InFlight& record,
                                const BeforeLayer& before_layer);
  /// F on a tape, out of the record's inputs. Without `with_loss` the loss is left out.
  model::LossResult record_tape(const schedule::Action& action, InFlight& record,
                                model::MutableTensorSpan buffers, const BeforeLayer& before_layer,
                                bool with_loss = true);

  const StageContext& context_;
  StageSums& sums_;

 private:
  SegmentEnds ends_;
};

/// Keeps only the inputs, and runs F again before B.
/// Source: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016.
class RecomputedPass : public TapePass {
 public:
  using TapePass::TapePass;

  void recompute(const schedule::Action& action, InFlight& record) override;
  void begin(const schedule::Action& action, InFlight& record, bool in_place) override;

 protected:
  model::LossResult run(const schedule::Action& action, InFlight& record,
                        const BeforeLayer& before_layer) override;
};

}  // namespace penstock::runtime
