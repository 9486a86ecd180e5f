#include "penstock/runtime/pass/recomputed_pass.h"

#include "penstock/model/device/copies.h"
#include "penstock/runtime/pass/evaluation_pass.h"
#include "penstock/util/check.h"

namespace penstock::runtime {

using schedule::Action;

void RecomputedPass::begin(const Action&, InFlight& record, bool /*in_place*/) {
  record.buffers = context_.replica.buffers;
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
  record_tape(action, record, buffers, {});
  record.outputs.clear();
}

}  // namespace penstock::runtime
