#include "penstock/imported/team_lstm.h"

#include <optional>
#include <utility>

#include "penstock/imported/team_rules.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::imported {

using shard::Type;

namespace {

constexpr int64_t kGates = 4;

/// Why members cannot have hidden units each; empty: they can.
std::string why_whole(const LstmArguments& lstm, TeamValues& values, const StepEdit& edit) {
  if (lstm.is_packed) return "reads packed sequences";
  if (lstm.has_projections()) return "projects its hidden states (proj_size)";
  if (values.sizes(lstm.input).rank() != 3) return "reads a sequence without a batch";
  for (const std::string& state : lstm.states) {
    if (values.has_gradient(state, edit)) return "begins with states that have a gradient";
  }
  const std::vector<std::string> made = edit.outputs();
  const bool reads_cells = made.size() > 2 && !made[2].empty() && values.is_read(made[2]);
  return reads_cells ? "makes cells that are read" : "";
}

}  // namespace

LstmArguments::LstmArguments(const StepEdit& step)
    : states(step.tensors("hx")),
      weights(step.tensors("params")),
      layers(step.number("num_layers").value_or(1)),
      directions(step.flag("bidirectional").value_or(false) ? 2 : 1),
      has_biases(step.flag("has_biases").value_or(true)),
      batch_first(step.flag("batch_first").value_or(false)),
      is_packed(step.step().node.target.ends_with(".data")) {
  input = is_packed ? step.need("data") : step.need("input");
}

bool LstmArguments::has_projections() const {
  return std::ssize(weights) != layers * directions * (has_biases ? 4 : 2);
}

void lstm_of_units(TeamValues& values, StepEdit edit) {
  for (const std::string& name : edit.reads()) {
    if (values.is_part(name)) values.refuse(values.type(name), edit, "takes no parts there");
  }
  const LstmArguments lstm(edit);
  const auto rows =
      lstm.weights.empty() ? std::optional<Type>() : values.spread(lstm.first_weight(), 0, edit);
  if (!rows) return values.pass(edit);
  if (const std::string why = why_whole(lstm, values, edit); !why.empty())
    values.refuse(*rows, edit, why);
  const int64_t units = values.sizes(lstm.weights[1]).numbers.back();
  const std::vector<int64_t> gates(kGates, units);
  if (values.sizes(lstm.first_weight()).numbers.front() != kGates * units)
    values.refuse(*rows, edit, "has other rows than those of four gates");
  if (rows->blocks != gates) values.cut(lstm.first_weight(), {units, 2 * units, 3 * units}, edit);
  for (const std::string& weight : lstm.weights)
    values.part(weight, Type::part(0, rows->region, gates), edit);
  for (const std::string& state : lstm.states) values.read_equal(state);
  edit.set_tensor("input", values.pending(lstm.input, *rows, edit));
  edit.step().team = values.team_step(TeamStep::Kind::Lstm, *rows);
  const std::vector<int64_t> sizes = values.sizes_in_example(lstm.input);
  const int64_t meetings = saturating_mul(sizes.at(lstm.batch_first ? 1 : 0),
                                          saturating_mul(lstm.layers, lstm.directions));
  values.add_exchanges({meetings, saturating_mul(meetings, units)});
  // Between its layers the gradient of what all members read is summed: in the backward pass alone,
  // which is as much as a gather and its backward.
  const int64_t joints = lstm.layers - 1;
  const int64_t places = saturating_mul(sizes.at(lstm.batch_first ? 1 : 0), lstm.directions);
  values.add_exchanges({joints, saturating_mul(joints, saturating_mul(places, units))});
  values.emit(edit);
}

}  // namespace penstock::imported
