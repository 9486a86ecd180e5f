// One step of one worker. A schedule is one list of these per worker; the verifier, the simulator
// and the executor all read the same lists.
#pragma once

#include <compare>
#include <cstdint>
#include <string_view>

#include "penstock/util/ids.h"

namespace penstock::schedule {

/// What the action does, in pseudo-code (s = stage, b = micro-batch, t = mini-batch):
enum class Op : uint8_t {
  /// F     y[s,b] = forward(weights[s]@version, inputs[s,b]); keeps what backward needs (if s
  /// recomputes: only the inputs).
  Forward,
  /// B     (dx, dw) = backward(y[s,b], dy[s,b]) on weights[s]@version; gradient[s] += dw; frees
  /// what F kept.
  Backward,
  /// I     only dx; keeps what W needs (zero bubble, Qi et al., ICLR 2024). I and W together
  /// replace B.
  BackwardInput,
  BackwardWeight,  ///< W     only dw; gradient[s] += dw; frees the rest of what F kept
  /// R     runs F(s,b) again from the inputs that it kept, so that B or I finds what it needs.
  Recompute,
  /// OFFLOAD  starts to move what F(s,b) kept to the memory of the host; first waits until the
  /// worker's last OFFLOAD has arrived there, and drops that from the worker's own memory.
  Offload,
  /// LOAD  starts to bring it back; B or I(s,b) waits for it.
  Load,
  /// SEND_F  put the outputs of F(s,b) that stage `peer` reads into the channel to its worker;
  /// waits for a free credit.
  SendForward,
  /// RECV_F  take the inputs of F(s,b), which stage `peer` made, from the channel; waits for them.
  RecvForward,
  /// SEND_B  put the gradients of B(s,b) for stage `peer`'s outputs into the channel to its worker.
  SendBackward,
  RecvBackward,  ///< RECV_B  take the gradients of y[s,b] that stage `peer` made
  /// SYNC  gradient[s] = sum of gradient[s] over the replicas of s; waits for all of them.
  SyncGradients,
  /// NORM  norm = sqrt(sum over all stages of |gradient[s]|^2); waits for all workers; once per
  /// worker and mini-batch, marked with the worker's first stage.
  NormGradients,
  /// STEP  weights[s]@version+1 = optimiser(weights[s]@version, gradient[s]); gradient[s] = 0.
  Step,
  /// FREE  no later F or B of this worker uses weights[s]@version. Directly before the STEP that
  /// replaces this version, it lets the step update in place; anywhere else it releases the
  /// version's memory.
  FreeWeights,
};

struct Action {
  Op op = Op::Forward;
  StageId stage{};
  /// Compute, moves and messages: the micro-batch. SYNC, NORM, STEP, FREE: unused (0).
  MicroBatchId micro_batch{};
  /// The mini-batch of the action. When a run stops early, every worker leaves out all actions of
  /// later mini-batches.
  MiniBatchId mini_batch{};
  /// Messages: the other stage. Otherwise equal to `stage`.
  StageId peer{};
  /// F before a B or I of another micro-batch: the two run together, as one action with a cost of
  /// its own (DualPipe's OVERLAP_F_B). They stand directly behind each other: what they receive
  /// comes before both, what they send after both. Both may run at the same time, so neither may
  /// need what the other makes; one after the other, F first, is right, too.
  bool with_next = false;
  /// Compute: by how many steps the weights are moved beyond `version`, back where it is negative
  /// (plan::steps_ahead()). 0: they are that version's, and before lowering.
  int32_t ahead = 0;
  /// Compute, STEP, FREE: the version of this stage's weights that is read (or freed). -1 before
  /// lowering.
  WeightVersion version{-1};

  auto operator<=>(const Action&) const = default;
};

/// F, B, I, W, R: of one micro-batch, on one version of the weights.
constexpr bool is_compute(Op op) {
  return op == Op::Forward || op == Op::Backward || op == Op::BackwardInput ||
         op == Op::BackwardWeight || op == Op::Recompute;
}
/// B, I: takes the gradients of the outputs and makes those of the inputs.
constexpr bool makes_input_gradients(Op op) {
  return op == Op::Backward || op == Op::BackwardInput;
}
/// B, W: makes the gradients of the weights and frees what F kept.
constexpr bool makes_weight_gradients(Op op) {
  return op == Op::Backward || op == Op::BackwardWeight;
}
constexpr bool is_send(Op op) { return op == Op::SendForward || op == Op::SendBackward; }
constexpr bool is_receive(Op op) { return op == Op::RecvForward || op == Op::RecvBackward; }
constexpr bool is_message(Op op) { return is_send(op) || is_receive(op); }
/// To the memory of the worker's host, or from there.
constexpr bool is_move(Op op) { return op == Op::Offload || op == Op::Load; }
/// Of one micro-batch, not of a mini-batch.
constexpr bool has_micro_batch(Op op) { return is_compute(op) || is_message(op) || is_move(op); }

/// Whether `action` can run together with `next`.
constexpr bool can_overlap(const Action& action, const Action& next) {
  return action.op == Op::Forward && makes_input_gradients(next.op) &&
         action.micro_batch != next.micro_batch;
}

/// "F", "B", "I", "W", "R", "OFFLOAD", "LOAD", "SEND_F", "RECV_F", "SEND_B", "RECV_B", "SYNC",
/// "NORM", "STEP", "FREE".
std::string_view to_string(Op op);

}  // namespace penstock::schedule
