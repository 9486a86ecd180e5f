// How a stage makes its forward and backward passes. The way is chosen once per run: without a
// backward pass (EvaluationPass), by a tape of autograd (tape_pass.h), through the newest
// micro-batch (newest_pass.h), by graphs of the device (graph_pass.h). Internal to runtime.
//
//   std::unique_ptr<Pass> pass = make_pass(context, sums);
//   model::LossResult loss = pass->forward(action, record);   // F
//   pass->receive(record, later_stage, std::move(parts));     // RECV_B
//   pass->backward(action, record);                           // B: gradients go to `sums`
#pragma once

#include <memory>
#include <utility>

#include "penstock/model/loss.h"
#include "penstock/runtime/carried_states.h"
#include "penstock/runtime/pass/in_flight.h"
#include "penstock/runtime/stage_context.h"
#include "penstock/schedule/action.h"

namespace penstock::runtime {

class StageSums;

/// Not thread-safe: its worker owns it. Throws what layers throw.
class Pass {
 public:
  virtual ~Pass() = default;
  Pass() = default;
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

  /// F: makes the record's outputs and, on the stage that makes the model's output, the loss.
  virtual model::LossResult forward(const schedule::Action& action, InFlight& record) = 0;
  /// R: F once more, for the backward pass.
  virtual void recompute(const schedule::Action& action, InFlight& record);
  /// B: gives the gradients of weights to the stage's sums.
  virtual void backward(const schedule::Action& action, InFlight& record);
  /// I and W: the two parts of B.
  virtual void backward_inputs(const schedule::Action& action, InFlight& record);
  virtual void backward_weights(const schedule::Action& action, InFlight& record);

  /// Gradients of the outputs that a later stage has read, before B or I.
  virtual void receive(InFlight& record, StageId from, model::Tensors parts);
  /// Gradients for an earlier stage, after B or I. Once.
  virtual model::Tensors message(InFlight& record, StageId to);

  /// OFFLOAD: its memory is there until HostStash::drop(). Null where nothing moves.
  virtual std::shared_ptr<HostStash> offload(InFlight&) { return nullptr; }
  /// LOAD.
  virtual void load(InFlight&) {}
};

/// F without a tape: the record's outputs, and the loss where the stage makes the model's output.
/// `before_layer`: as StageModule::forward() takes it.
model::LossResult forward_without_tape(const StageContext& context, const schedule::Action& action,
                                       InFlight& record, const BeforeLayer& before_layer);

/// Runs F, whose record has the states of the micro-batch's place, where states are carried; what F
/// makes of them takes their place.
template <class F>
model::LossResult carrying(const StageContext& context, CarriedStates& states,
                           const schedule::Action& action, InFlight& record, F&& forward) {
  if (!context.carries()) return forward();
  const int64_t place = context.place_of(action.micro_batch);
  record.carried = states.before(place);
  model::LossResult loss = forward();
  states.keep(place, std::move(record.carried));
  return loss;
}

/// No dropout, no gradient, no change of buffers. A micro-batch is done after F.
class EvaluationPass : public Pass {
 public:
  explicit EvaluationPass(const StageContext& context)
      : context_(context), carried_(context.module().carried_offsets().back()) {}

  model::LossResult forward(const schedule::Action& action, InFlight& record) override;

 private:
  const StageContext& context_;
  CarriedStates carried_;  ///< of the run's texts alone
};

/// Of a stage for one run; keeps references. In make_pass.cpp.
std::unique_ptr<Pass> make_pass(const StageContext& context, StageSums& sums);

}  // namespace penstock::runtime
