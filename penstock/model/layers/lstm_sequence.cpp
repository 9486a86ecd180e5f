#include "penstock/model/layers/lstm_sequence.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <numeric>
#include <vector>

namespace penstock::model {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

/// What the loop over the places made, [batch, time, ...] each. In a team gates and cells are those
/// of the member's own units.
struct LstmStates {
  at::Tensor gates;   ///< after their functions
  at::Tensor cells;   ///< of 16 bits they would lose what they remember: at least float32
  at::Tensor hidden;  ///< the result, of all units
  LstmState before;   ///< in these types
};

/// gates + weight_hh h_{t-1}, whose value the loop has made in the gates' place. Its own type, so
/// that the runtime knows that the gradients of its operands share no work (runtime/layer_split.cpp
/// names it).
class RecurrentProduct : public Function<RecurrentProduct> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gates,
                            const at::Tensor& /*weight_hh*/, const LstmStates& states) {
    // Without its history, which comes back here.
    context->save_for_backward({states.hidden.detach(), states.before.hidden});
    return gates;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor& gradient = gradients.front();
    variable_list result(3);
    if (context->needs_input_grad(0)) result[0] = gradient;
    if (context->needs_input_grad(1)) {
      const variable_list saved = context->get_saved_variables();
      const at::Tensor& hidden = saved[0];
      at::Tensor before = at::zeros_like(hidden);
      if (saved[1].defined()) before.select(1, 0).copy_(saved[1]);
      const int64_t later = hidden.size(1) - 1;
      before.narrow(1, 1, later).copy_(hidden.narrow(1, 0, later));
      result[1] =
          gradient.reshape({-1, gradient.size(2)}).t().mm(before.view({-1, hidden.size(2)}));
    }
    return result;
  }
};

namespace {

/// The four gates of [..., 4 * features].
std::vector<at::Tensor> four(const at::Tensor& gates) { return gates.chunk(4, -1); }

LstmStates run_lstm(const at::Tensor& gates, const at::Tensor& weight, const LstmState& before,
                    const LstmTeam& team) {
  const c10::AutoGradMode no_grad(false);
  const int64_t batch = gates.size(0);
  const int64_t time = gates.size(1);
  const int64_t own = gates.size(2) / 4;
  const at::ScalarType type = gates.element_size() < 4 ? at::kFloat : gates.scalar_type();
  LstmStates states{.gates = gates,
                    .cells = at::empty({batch, time, own}, gates.options().dtype(type)),
                    .hidden = at::empty({batch, time, weight.size(1)}, gates.options()),
                    .before = {}};
  if (before.hidden.defined())
    states.before = {before.hidden.to(gates.scalar_type()), before.cell.to(type)};
  const at::Tensor recurrent = weight.t();
  at::Tensor last_hidden = states.before.hidden;
  at::Tensor last_cell = states.before.cell;
  for (int64_t t = 0; t < time; ++t) {
    at::Tensor now = gates.select(1, t);
    if (last_hidden.defined()) now.addmm_(last_hidden, recurrent);
    now.narrow(1, 0, 2 * own).sigmoid_();
    now.narrow(1, 2 * own, own).tanh_();
    now.narrow(1, 3 * own, own).sigmoid_();
    const std::vector<at::Tensor> gate = four(now);
    at::Tensor cell = states.cells.select(1, t);
    at::mul_out(cell, gate[0], gate[2]);
    if (last_cell.defined()) cell.addcmul_(gate[1], last_cell);
    at::Tensor hidden = states.hidden.select(1, t);
    const at::Tensor made = cell.tanh().mul_(gate[3]);
    hidden.copy_(team.team == nullptr
                     ? made
                     : team.team->gather(made.to(hidden.scalar_type()), 1, team.units));
    last_hidden = std::move(hidden);
    last_cell = std::move(cell);
  }
  return states;
}

/// The result, whose backward pass goes through all places from the last one.
class LstmLoop : public Function<LstmLoop> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& /*gates*/,
                            const at::Tensor& weight, const LstmStates& states,
                            const LstmTeam& team) {
    context->save_for_backward({states.gates, states.cells, weight, states.before.cell});
    context->saved_data["team"] = reinterpret_cast<int64_t>(team.team);
    context->saved_data["units"] = team.units;
    return states.hidden;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const c10::AutoGradMode no_grad(false);
    const variable_list saved = context->get_saved_variables();
    const LstmStates states{
        .gates = saved[0], .cells = saved[1], .hidden = {}, .before = {{}, saved[3]}};
    const LstmTeam team{reinterpret_cast<Team*>(context->saved_data["team"].toInt()),
                        context->saved_data["units"].toIntVector()};
    return {gradient_of_gates(states, saved[2], own_units(gradients.front(), team), team),
            at::Tensor(), at::Tensor(), at::Tensor()};
  }

 private:
  /// Of [batch, time, features], those of the member.
  static at::Tensor own_units(const at::Tensor& gradient, const LstmTeam& team) {
    if (team.team == nullptr) return gradient;
    const auto own = team.units.begin() + team.team->member();
    return gradient.narrow(2, std::accumulate(team.units.begin(), own, int64_t{0}), *own);
  }

  /// What the gradients of h_t and c_t are multiplied with, for all places at once; then, place by
  /// place, the products.
  static at::Tensor gradient_of_gates(const LstmStates& states, const at::Tensor& weight,
                                      const at::Tensor& hidden, const LstmTeam& team) {
    const at::Tensor& gates = states.gates;
    const at::Tensor& cells = states.cells;
    const int64_t features = cells.size(2);
    const int64_t time = gates.size(1);
    const std::vector<at::Tensor> gate = four(gates);
    const at::Tensor tanh = cells.tanh();
    at::Tensor result = at::empty_like(gates, at::MemoryFormat::Contiguous);
    std::vector<at::Tensor> part = four(result);
    part[0].copy_(gate[2] * gate[0] * (1 - gate[0]));
    at::Tensor first_forget = part[1].select(1, 0);
    if (states.before.cell.defined()) {
      const at::Tensor forget = gate[1].select(1, 0);
      first_forget.copy_(states.before.cell * forget * (1 - forget));
    } else {
      first_forget.zero_();
    }
    if (time > 1) {
      const at::Tensor forget = gate[1].narrow(1, 1, time - 1);
      part[1].narrow(1, 1, time - 1).copy_(cells.narrow(1, 0, time - 1) * forget * (1 - forget));
    }
    part[2].copy_(gate[0] * (1 - gate[2] * gate[2]));
    part[3].copy_(tanh * gate[3] * (1 - gate[3]));
    const at::Tensor to_cell = gate[3] * (1 - tanh * tanh);

    at::Tensor cell_gradient;
    for (int64_t t = time - 1; t >= 0; --t) {
      at::Tensor here = hidden.select(1, t);
      if (t + 1 < time && team.team == nullptr)
        here = here.addmm(result.select(1, t + 1), weight);
      else if (t + 1 < time)
        here = here + team.team->sum_part(result.select(1, t + 1).mm(weight), 1, team.units);
      at::Tensor to_cells = here * to_cell.select(1, t);
      if (t + 1 < time) to_cells.addcmul_(cell_gradient, gate[1].select(1, t + 1));
      cell_gradient = to_cells;
      at::Tensor now = result.select(1, t);
      now.narrow(1, 0, 3 * features)
          .unflatten(1, std::vector<int64_t>{3, features})
          .mul_(cell_gradient.unsqueeze(1));
      now.narrow(1, 3 * features, features).mul_(here);
    }
    return result;
  }
};

}  // namespace

LstmRun lstm_sequence(const at::Tensor& gates, const at::Tensor& weight_hh, const LstmState& before,
                      const LstmTeam& team) {
  const at::Tensor weight = weight_hh.detach();
  const LstmStates states = run_lstm(gates.detach(), weight, before, team);
  const int64_t last = states.hidden.size(1) - 1;
  LstmRun run{.hidden = {},
              .last = {.hidden = states.hidden.detach().select(1, last),
                       .cell = states.cells.select(1, last)}};
  run.hidden =
      LstmLoop::apply(RecurrentProduct::apply(gates, weight_hh, states), weight, states, team);
  return run;
}

}  // namespace penstock::model
