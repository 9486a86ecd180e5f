#include "penstock/runtime/pass/evaluation_pass.h"

#include <ATen/core/grad_mode.h>

namespace penstock::runtime {

model::LossResult forward_without_tape(const StageContext& context, const schedule::Action& action,
                                       InFlight& record, const BeforeLayer& before_layer) {
  const at::NoGradGuard no_grad;
  Replica& replica = context.replica;
  record.outputs =
      context.module().forward(replica.weights.at(action.version), replica.buffers, record.inputs,
                               context.forward_context(action), before_layer);
  if (!context.makes_output()) return {};
  return context.run.loss(record.outputs[context.module().model_outputs().front()],
                          context.targets(action.micro_batch),
                          context.run.source.size_of(action.mini_batch));
}

model::LossResult EvaluationPass::forward(const schedule::Action& action, InFlight& record) {
  model::LossResult loss = forward_without_tape(context_, action, record, {});
  record.inputs.clear();
  record.done = true;
  return loss;
}

}  // namespace penstock::runtime
