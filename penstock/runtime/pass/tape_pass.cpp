#include "penstock/runtime/pass/tape_pass.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "penstock/model/device/copies.h"
#include "penstock/runtime/sums/stage_sums.h"
#include "penstock/util/check.h"

namespace penstock::runtime {

using schedule::Action;

model::LossResult TapePass::forward(const Action& action, InFlight& record) {
  Replica& replica = context_.replica;
  replica.has_trained = true;
  return carrying(context_, replica.carried, action, record, [&] {
    {
      // The backward of an earlier micro-batch may still need the old buffers: like weights, they
      // are replaced, not overwritten.
      const at::NoGradGuard no_grad;
      begin(action, record, /*in_place=*/false);
      replica.buffers = model::copies_of(replica.buffers);
    }
    return run(action, record, sums_.before_layer(action));
  });
}

model::LossResult TapePass::run(const Action& action, InFlight& record,
                                const BeforeLayer& before_layer) {
  return record_tape(action, record, context_.replica.buffers, before_layer);
}

model::LossResult TapePass::record_tape(const Action& action, InFlight& record,
                                        model::MutableTensorSpan buffers,
                                        const BeforeLayer& before_layer, bool with_loss) {
  StageTape& tape = activations(record).tape.emplace(context_.module(), ends_);
  record.outputs = tape.forward(context_.weights(action), buffers, record.inputs,
                                context_.forward_context(action, record.carried), before_layer);
  record.inputs.clear();
  if (!context_.makes_output() || !with_loss) return {};
  const Run& run = context_.run;
  at::Tensor& kept = record.outputs[context_.module().model_outputs().front()];
  const bool takes = run.pipeline.loss_takes_output && context_.module().target_stages().empty();
  at::Tensor output = takes ? std::exchange(kept, {}) : kept;
  return tape.loss(context_.loss(), std::move(output), context_.targets(action.micro_batch),
                   context_.size_of(action), context_.loss_scale_of(action.micro_batch));
}

void TapePass::backward(const Action& action, InFlight& record) {
  std::optional<StageTape>& tape = activations(record).tape;
  PENSTOCK_CHECK(tape.has_value(), "stage", context_.stage(), "cannot run B of micro-batch",
                 action.micro_batch);
  tape->set_loss_scale(context_.loss_scale_of(action.micro_batch));
  sums_.add(action,
            [&](const StageTape::Made& made) { return tape->backward(record.gradients, made); });
  tape.reset();
}

void TapePass::backward_inputs(const Action& action, InFlight& record) {
  std::optional<StageTape>& tape = record.activations.tape;
  PENSTOCK_CHECK(tape.has_value(), "stage", context_.stage(), "cannot run I of micro-batch",
                 action.micro_batch);
  tape->set_loss_scale(context_.loss_scale_of(action.micro_batch));
  tape->backward_inputs(record.gradients);
}

void TapePass::backward_weights(const Action& action, InFlight& record) {
  std::optional<StageTape>& tape = record.activations.tape;
  PENSTOCK_CHECK(tape.has_value(), "stage", context_.stage(), "cannot run W of micro-batch",
                 action.micro_batch);
  sums_.add(action, [&](const StageTape::Made& made) { return tape->backward_weights(made); });
  tape.reset();
}

void RecomputedPass::begin(const Action&, InFlight& record, bool /*in_place*/) {
  record.buffers = context_.replica.buffers;
  record.carried_before = record.carried;
}

model::LossResult RecomputedPass::run(const Action& action, InFlight& record,
                                      const BeforeLayer& before_layer) {
  return forward_without_tape(context_, action, record, before_layer);
}

void RecomputedPass::recompute(const Action& action, InFlight& record) {
  PENSTOCK_CHECK(!record.inputs.empty() && record.outputs_to_give == 0, "stage", context_.stage(),
                 "micro-batch", action.micro_batch);
  // The replica's own buffers already include this micro-batch and later ones.
  model::Tensors buffers = model::copies_of(record.buffers);
  record.buffers.clear();
  record.carried = std::move(record.carried_before);
  record_tape(action, record, buffers, {});
  record.carried.clear();
  record.outputs.clear();
}

}  // namespace penstock::runtime
