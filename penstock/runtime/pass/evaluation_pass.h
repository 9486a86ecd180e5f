// Forward passes of a run that does not train. Internal to runtime.
#pragma once

#include "penstock/runtime/pass/pass.h"

namespace penstock::runtime {

/// F without a tape: the record's outputs, and the loss where the stage makes the model's output.
/// `before_layer`: as StageModule::forward() takes it.
model::LossResult forward_without_tape(const StageContext& context, const schedule::Action& action,
                                       InFlight& record, const BeforeLayer& before_layer);

/// No dropout, no gradient, no change of buffers. A micro-batch is done after F.
class EvaluationPass : public Pass {
 public:
  explicit EvaluationPass(const StageContext& context) : context_(context) {}

  model::LossResult forward(const schedule::Action& action, InFlight& record) override;

 private:
  const StageContext& context_;
};

}  // namespace penstock::runtime
