// One step of one worker. A schedule is one list of these per worker; the verifier, the simulator and the executor all read
// the same lists.
#pragma once

#include <compare>
#include <cstdint>
#include <string_view>

#include "penstock/util/ids.h"

namespace penstock::schedule {

/// What the action does, in pseudo-code (s = stage, b = micro-batch, t = mini-batch):
enum class Op : uint8_t {
  Forward,        ///< F     y[s,b] = forward(weights[s]@version, inputs[s,b]); keeps what backward needs
  Backward,       ///< B     (dx, dw) = backward(y[s,b], dy[s,b]) on weights[s]@version; gradient[s] += dw; frees what F kept
  SendForward,    ///< SEND_F  put the outputs of F(s,b) that stage `peer` reads into the channel to its worker; waits for a free credit
  RecvForward,    ///< RECV_F  take the inputs of F(s,b) that stage `peer` made out of the channel; waits for them
  SendBackward,   ///< SEND_B  put the gradients of B(s,b) for stage `peer`'s outputs into the channel to its worker
  RecvBackward,   ///< RECV_B  take the gradients of y[s,b] that stage `peer` made
  SyncGradients,  ///< SYNC  gradient[s] = sum of gradient[s] over the replicas of s; waits for all of them
  Step,           ///< STEP  weights[s]@version+1 = optimiser(weights[s]@version, gradient[s]); gradient[s] = 0
  FreeWeights,    ///< FREE  no later F or B of this worker uses weights[s]@version. Just before the STEP that replaces that very version it
                  ///<       allows the step to update in place; otherwise the version's memory is released.
};

struct Action {
  Op op = Op::Forward;
  StageId stage{};
  /// F, B and messages: the micro-batch. SYNC, STEP, FREE: unused (0).
  MicroBatchId micro_batch{};
  /// The mini-batch the action belongs to; when a run stops early all actions of later mini-batches are left out everywhere.
  MiniBatchId mini_batch{};
  /// Messages: the other stage. Otherwise equal to `stage`.
  StageId peer{};
  /// F, B, STEP, FREE: the version of this stage's weights that is read (or freed). -1 before lowering.
  WeightVersion version{-1};

  auto operator<=>(const Action&) const = default;
};

constexpr bool is_compute(Op op) { return op == Op::Forward || op == Op::Backward; }
constexpr bool is_send(Op op) { return op == Op::SendForward || op == Op::SendBackward; }
constexpr bool is_receive(Op op) { return op == Op::RecvForward || op == Op::RecvBackward; }
constexpr bool is_message(Op op) { return is_send(op) || is_receive(op); }

/// "F", "B", "SEND_F", "RECV_F", "SEND_B", "RECV_B", "SYNC", "STEP", "FREE".
std::string_view to_string(Op op);

}  // namespace penstock::schedule
