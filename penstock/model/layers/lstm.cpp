#include <ATen/ops/add.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "penstock/model/device/devices.h"
#include "penstock/model/layers/builtin.h"
#include "penstock/model/layers/linear_product.h"
#include "penstock/model/layers/lstm_sequence.h"
#include "penstock/model/layers/work.h"
#include "penstock/model/lone_team.h"
#include "penstock/model/shapes.h"
#include "penstock/model/works_on_parts.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::model::detail {
namespace {

constexpr int64_t kGates = 4;

/// One layer of torch.nn.LSTM in one direction, with its names: weight_ih_l0 [4 * features, in],
/// weight_hh_l0 [4 * features, features], bias_ih_l0, bias_hh_l0 [4 * features]; the gates in the
/// order input, forget, cell, output. [time, in] becomes [time, features]; the states before the
/// first place are those that the context carries, or zero.
class Lstm : public BuiltinLayer, public WorksOnParts {
 public:
  Lstm(int64_t in_features, LstmOptions options)
      : in_features_(in_features), options_(std::move(options)) {}

  std::string kind() const override { return "lstm"; }
  std::string code() const override { return fmt::format("lstm {}", options_.weight_dropout); }
  /// Hidden units.
  int64_t units() const override { return options_.features; }
  std::shared_ptr<const Layer> on_part(const InputPart& part) const override;
  bool is_random() const override { return options_.weight_dropout > 0; }
  std::vector<ParameterSpec> parameters() const override {
    const Init init = options_.weight_init.value_or(
        Init::uniform(1 / std::sqrt(static_cast<double>(options_.features))));
    const int64_t rows = kGates * options_.features;
    std::vector<ParameterSpec> specs = {{"weight_ih_l0", {rows, in_features_}, init},
                                        {"weight_hh_l0", {rows, options_.features}, init},
                                        {"bias_ih_l0", {rows}, init},
                                        {"bias_hh_l0", {rows}, init}};
    if (options_.module.empty()) return specs;
    for (ParameterSpec& spec : specs)
      spec.key = options_.module + '.' + spec.name + options_.suffix;
    return specs;
  }
  std::vector<CarriedSpec> carried() const override {
    if (!options_.carries) return {};
    return {{"hidden", {options_.features}}, {"cell", {options_.features}}};
  }
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override {
    expect_inputs(inputs, 1);
    if (inputs[0].size() != 2 || inputs[0][1] != in_features_) {
      throw ConfigError(fmt::format("expected an input of shape [time, {}], found {}", in_features_,
                                    shape_text(inputs[0])));
    }
    return {{inputs[0][0], options_.features}};
  }

  /// The input's product is one, the recurrent one is made place by place and reads its weight at
  /// each; so is the gradient of what comes before a place. The gates' functions and their
  /// gradients are some passes over the gates.
  profile::LayerWork work(const std::vector<Shape>& inputs, const std::vector<Shape>& outputs,
                          int64_t batch) const override {
    const int64_t time = inputs[0][0];
    const int64_t rows = saturating_mul(batch, time);
    const int64_t gates = saturating_mul(kGates, options_.features);
    const int64_t numbers = batch_numbers(outputs, batch);
    const int64_t gate_numbers = saturating_mul(kGates, numbers);
    const profile::Operation input = matrix_product(rows, in_features_, gates);
    const profile::Operation recurrent = products(time, {batch, options_.features, gates});
    profile::LayerWork work{
        .forward = {input, recurrent, elementwise({gate_numbers, gate_numbers, numbers, numbers})},
        .backward_weights = {input, matrix_product(rows, options_.features, gates),
                             elementwise({gate_numbers})},
        .backward_inputs = {input, recurrent,
                            elementwise({gate_numbers, gate_numbers, gate_numbers, numbers})},
        // the gates, the cells, the result
        .stash_bytes = tensor_bytes(saturating_mul(6, numbers))};
    if (!is_random()) return work;
    const int64_t weights = saturating_mul(gates, options_.features);
    work.forward.push_back(elementwise({weights, weights, weights}));
    work.backward_weights.push_back(elementwise({weights, weights, weights}));
    work.stash_bytes = saturating_add(work.stash_bytes, tensor_bytes(saturating_mul(2, weights)));
    return work;
  }

  Tensors forward(TensorSpan weights, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext& context) const override {
    const at::Tensor gates = gates_of(weights, inputs);
    const at::Tensor recurrent = dropped(weights[1], weights[1].size(0), context);
    if (context.carried.empty()) return {lstm_sequence(gates, recurrent, {}).hidden};
    LstmRun run = lstm_sequence(gates, recurrent, {context.carried[0], context.carried[1]});
    // Copies: windows behind this one must not keep its places in memory.
    context.carried[0] = run.last.hidden.clone();
    context.carried[1] = run.last.cell.clone();
    return {std::move(run.hidden)};
  }

 protected:
  /// Of all places, without what they take from the places before.
  static at::Tensor gates_of(TensorSpan weights, TensorSpan inputs) {
    return linear(inputs[0], weights[0], at::add(weights[2], weights[3]));
  }

  /// One mask for all places and samples of a micro-batch (Merity et al. 2018, section 2): that of
  /// a weight with so many rows, of which `part` are there.
  at::Tensor dropped(const at::Tensor& weight, int64_t rows, const ForwardContext& context,
                     const InputPart& part = {}) const {
    if (!context.training || !is_random()) return weight;
    at::Tensor mask = at::empty({rows, weight.size(1)}, weight.options());
    mask.bernoulli_(1 - options_.weight_dropout,
                    installed_devices().generator(mask.device(), context.seed))
        .mul_(1 / (1 - options_.weight_dropout));
    return at::mul(weight, part.of(mask));
  }

 private:
  int64_t in_features_;
  LstmOptions options_;
};

/// A member's hidden units: its rows of each gate. It carries no states: runs refuse to.
class LstmOfUnits final : public Lstm {
 public:
  LstmOfUnits(const Lstm& whole, InputPart rows)
      : Lstm(whole),
        rows_(std::move(rows)),
        units_(units_of(rows_.lengths)),
        alone_(static_cast<int>(units_.size()), place()) {}

  std::string code() const override {
    return fmt::format("{}{}, units {}", Lstm::code(), rows_.text(), fmt::join(units_, " "));
  }

  Tensors forward(TensorSpan weights, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext& context) const override {
    const at::Tensor recurrent = dropped(weights[1], rows_.whole, context, rows_);
    Team* const team = context.team == nullptr ? &alone_ : context.team;
    return {lstm_sequence(gates_of(weights, inputs), recurrent, {}, {team, units_}).hidden};
  }

 private:
  static std::vector<int64_t> units_of(std::vector<int64_t> lengths) {
    for (int64_t& length : lengths) length /= kGates;
    return lengths;
  }
  /// Among the members.
  int place() const {
    int64_t before = 0;
    int member = 0;
    while (before < rows_.runs.front().begin) before += units_[static_cast<size_t>(member++)];
    return member;
  }

  InputPart rows_;
  std::vector<int64_t> units_;  ///< of all members
  /// For the profile of one member; it has no state.
  mutable LoneTeam alone_;
};

std::shared_ptr<const Layer> Lstm::on_part(const InputPart& part) const {
  return std::make_shared<LstmOfUnits>(*this, part);
}

}  // namespace

LayerPtr make_lstm(int64_t in_features, const LstmOptions& options) {
  check_range(options.features, 1, kMaxElements / kGates, "features");
  check_probability(options.weight_dropout);
  return std::make_shared<Lstm>(in_features, options);
}

}  // namespace penstock::model::detail
