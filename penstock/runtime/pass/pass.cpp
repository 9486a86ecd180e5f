#include "penstock/runtime/pass/pass.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "penstock/util/check.h"

namespace penstock::runtime {

using schedule::Action;

void Pass::recompute(const Action& action, InFlight&) {
  PENSTOCK_CHECK(false, "micro-batch", action.micro_batch, "is not recomputed");
}

void Pass::backward(const Action& action, InFlight&) {
  PENSTOCK_CHECK(false, "micro-batch", action.micro_batch, "has no backward pass");
}

void Pass::backward_inputs(const Action& action, InFlight&) {
  PENSTOCK_CHECK(false, "micro-batch", action.micro_batch, "has no backward pass in two parts");
}

void Pass::backward_weights(const Action& action, InFlight&) {
  PENSTOCK_CHECK(false, "micro-batch", action.micro_batch, "has no backward pass in two parts");
}

void Pass::receive(InFlight& record, StageId from, model::Tensors parts) {
  record.gradients.receive(from, std::move(parts));
}

model::Tensors Pass::message(InFlight& record, StageId to) { return record.gradients.message(to); }

model::LossResult forward_without_tape(const StageContext& context, const schedule::Action& action,
                                       InFlight& record, const BeforeLayer& before_layer) {
  const at::NoGradGuard no_grad;
  Replica& replica = context.replica;
  SeesLayer sees_layer;
  const auto& on_layer = context.run.options().on_layer;
  if (on_layer && !context.run.training) {
    sees_layer = [&](LayerId layer, model::TensorSpan weights, model::TensorSpan inputs) {
      on_layer(action.micro_batch, layer, weights, inputs);
    };
  }
  record.outputs = context.module().forward(context.weights(action), replica.buffers, record.inputs,
                                            context.forward_context(action, record.carried),
                                            before_layer, sees_layer);
  if (!context.makes_output()) return {};
  // Nothing goes back from here: only who reports the loss needs it, unless all have a part of it.
  if (!context.reports_loss() && !context.run.pipeline.output_parts) return {};
  return context.loss()(record.outputs[context.module().model_outputs().front()],
                        context.targets(action.micro_batch), context.size_of(action));
}

model::LossResult EvaluationPass::forward(const schedule::Action& action, InFlight& record) {
  model::LossResult loss = carrying(context_, carried_, action, record, [&] {
    return forward_without_tape(context_, action, record, {});
  });
  record.inputs.clear();
  record.done = true;
  return loss;
}

}  // namespace penstock::runtime
