// The recurrence of an LSTM over a whole sequence, with a backward pass of its own.
//
// Autograd alone would record some ten small operations for each place, and a matrix product for
// the gradient of the recurrent weight at each. Here the loop over the places has the products that
// depend on each other only; the gradients of both weights are one large product each, which can
// wait (action W, runtime/layer_tape.h).
//
//   at::Tensor gates = linear(x, weight_ih, bias);              // [batch, time, 4 * features]
//   at::Tensor y = lstm_sequence(gates, weight_hh, {}).hidden;  // [batch, time, features]
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "penstock/model/team.h"

namespace penstock::model {

/// h and c of one place, [batch, features] each; undefined: zeros.
struct LstmState {
  at::Tensor hidden;
  at::Tensor cell;
};

struct LstmRun {
  at::Tensor hidden;  ///< of all places, [batch, time, features]
  LstmState last;     ///< of the last place, without history: views of all places
};

/// The members of a team that share out the hidden units: how many each has, in their order. Null:
/// one worker has all. It outlives the backward pass.
struct LstmTeam {
  Team* team = nullptr;
  std::vector<int64_t> units = {};
};

/// Hidden states h_1 ... h_T of an LSTM:
///   i, f, g, o = gates_t + weight_hh h_{t-1}
///   c_t = sigmoid(f) c_{t-1} + sigmoid(i) tanh(g);  h_t = sigmoid(o) tanh(c_t)
/// (Hochreiter and Schmidhuber 1997 with the forget gate of Gers et al. 2000, as torch.nn.LSTM).
/// `gates` [batch, time, 4 * features] is overwritten: it must be the result of an operation that
/// does not need it for its gradient, and nobody else's. `weight_hh` [4 * features, features].
/// `before`: the state before the first place; it gets no gradient.
///
/// In a team a member has the rows of its own units in each gate: `gates` [batch, time, 4 * own],
/// `weight_hh` [4 * own, features], cells [batch, own]. Hidden states are whole, and so is the
/// gradient of the result, on every member. Members meet at each place: forward they gather h_t,
/// backward each gets its own part of the sum of what h_{t-1} has to do with all gates. Either way
/// each of t members sends batch * features * (t - 1) / t numbers; a sequence is 2 * time - 1
/// exchanges, one after another.
LstmRun lstm_sequence(const at::Tensor& gates, const at::Tensor& weight_hh, const LstmState& before,
                      const LstmTeam& team = {});

}  // namespace penstock::model
