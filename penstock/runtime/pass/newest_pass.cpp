#include "penstock/runtime/pass/newest_pass.h"

#include <utility>

#include "penstock/model/device/copies.h"

namespace penstock::runtime {

using schedule::Action;

NewestPass::NewestPass(const StageContext& context, StageSums& sums, SegmentEnds ends)
    : TapePass(context, sums, std::move(ends)),
      recomputes_(context.shape().recomputes(context.stage())) {}

void NewestPass::begin(const Action& action, InFlight& record, bool in_place) {
  const model::Tensors& buffers = context_.replica.buffers;
  micro_batch_ = action.micro_batch;
  mini_batch_ = action.mini_batch;
  inputs_ = record.inputs;
  carried_ = record.carried;
  buffers_ = in_place ? model::copies_of(buffers) : buffers;
  newest_.tape.reset();
}

model::LossResult NewestPass::run(const Action& action, InFlight& record,
                                  const BeforeLayer& before_layer) {
  model::LossResult loss = recomputes_
                               ? forward_without_tape(context_, action, record, before_layer)
                               : TapePass::run(action, record, before_layer);
  record.inputs.clear();
  return loss;
}

void NewestPass::run_again(bool with_loss) {
  InFlight again(context_.module());
  again.inputs = inputs_;
  again.carried = carried_;
  model::Tensors buffers = model::copies_of(buffers_);
  const Action forward{.op = schedule::Op::Forward,
                       .stage = context_.stage(),
                       .micro_batch = micro_batch_,
                       .mini_batch = mini_batch_,
                       .peer = context_.stage(),
                       .version = context_.replica.weights.latest()};
  record_tape(forward, again, buffers, {}, with_loss);
}

void NewestPass::recompute(const Action&, InFlight&) { run_again(/*with_loss=*/true); }

void NewestPass::backward(const Action& action, InFlight& record) {
  // A loss that has a gradient has it already.
  if (!newest_.tape) run_again(/*with_loss=*/false);
  TapePass::backward(action, record);
}

}  // namespace penstock::runtime
