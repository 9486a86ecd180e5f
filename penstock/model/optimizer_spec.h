// The optimisers: a row each. Plain values without tensors; programs without libtorch may include
// this. docs/extending.md says how to add one.
//
//   OptimizerSpec spec = usual_spec(OptimizerKind::RmsProp);
//   traits(spec.kind).name == "rmsprop"; num_states(spec) == 1;
//   parse_optimizer("adamw") == OptimizerKind::AdamW;
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/model/optimizer_traits.h"
#include "penstock/util/error.h"

namespace penstock::model {

namespace detail {

using Spec = OptimizerSpec;
/// Of all optimisers, and of each group of parameters.
inline constexpr std::array<OptimizerParameter, 2> kOfAll = {
    {{.name = "weight decay", .value = &Spec::weight_decay},
     {.name = "the factor of a learning rate", .value = &Spec::rate_factor, .usual = 1}}};
inline constexpr OptimizerFlag kMaximize = {.name = "maximize", .value = &Spec::maximize};

constexpr OptimizerParameter momentum(double usual) {
  return {.name = "momentum", .value = &Spec::momentum, .usual = usual, .below = 1};
}
constexpr OptimizerParameter beta1(double usual) {
  return {.name = "beta1", .value = &Spec::beta1, .usual = usual, .below = 1};
}
constexpr OptimizerParameter beta2(double usual) {
  return {.name = "beta2", .value = &Spec::beta2, .usual = usual, .below = 1};
}
constexpr OptimizerParameter epsilon(double usual) {
  return {.name = "epsilon", .value = &Spec::epsilon, .usual = usual, .above_lowest = true};
}

inline constexpr std::array<OptimizerParameter, 1> kMomentum = {momentum(0.9)};
inline constexpr std::array<OptimizerParameter, 3> kMoments = {beta1(0.9), beta2(0.999),
                                                               epsilon(1e-8)};
inline constexpr std::array<OptimizerParameter, 4> kOfNAdam = {
    beta1(0.9),
    beta2(0.999),
    epsilon(1e-8),
    {.name = "momentum_decay", .value = &Spec::momentum_decay, .usual = 0.004}};
inline constexpr std::array<OptimizerParameter, 3> kOfRmsProp = {
    {{.name = "alpha", .value = &Spec::alpha, .usual = 0.99, .below = 1},
     epsilon(1e-8),
     momentum(0)}};
inline constexpr std::array<OptimizerParameter, 3> kOfAdagrad = {
    {{.name = "rate_decay", .value = &Spec::rate_decay},
     {.name = "initial_accumulator", .value = &Spec::initial_accumulator},
     epsilon(1e-10)}};
inline constexpr std::array<OptimizerParameter, 2> kOfLion = {beta1(0.9), beta2(0.99)};
inline constexpr std::array<OptimizerParameter, 3> kOfAsgd = {
    {{.name = "lambda", .value = &Spec::lambda, .usual = 1e-4},
     {.name = "power", .value = &Spec::power, .usual = 0.75},
     {.name = "average_from", .value = &Spec::average_from, .usual = 1e6}}};
inline constexpr std::array<OptimizerParameter, 3> kOfLamb = {beta1(0.9), beta2(0.999),
                                                              epsilon(1e-6)};
inline constexpr std::array<OptimizerParameter, 2> kOfLars = {
    momentum(0.9), {.name = "trust", .value = &Spec::trust, .usual = 0.001, .above_lowest = true}};
/// The usual epsilon: that of float32, squared where it is added to squares.
inline constexpr std::array<OptimizerParameter, 4> kOfAdafactor = {
    {epsilon(1.1920928955078125e-07),
     {.name = "scale_epsilon", .value = &Spec::scale_epsilon, .usual = 1e-3},
     {.name = "clip", .value = &Spec::clip, .usual = 1, .lowest = 1},
     {.name = "decay_power", .value = &Spec::decay_power, .usual = 0.8}}};
inline constexpr std::array<OptimizerParameter, 7> kOfMuon = {
    {momentum(0.95),
     beta1(0.9),
     beta2(0.999),
     epsilon(1e-8),
     {.name = "iterations", .value = &Spec::iterations, .usual = 5, .below = 100},
     {.name = "norm_epsilon", .value = &Spec::norm_epsilon, .usual = 1e-7, .above_lowest = true},
     {.name = "adamw_rate", .value = &Spec::adamw_rate, .usual = 1}}};
/// Those of Vyas et al.'s experiments.
inline constexpr std::array<OptimizerParameter, 5> kOfSoap = {
    {beta1(0.95),
     beta2(0.95),
     epsilon(1e-8),
     {.name = "basis_every", .value = &Spec::basis_every, .usual = 10, .lowest = 1, .below = 1e9},
     {.name = "largest_side", .value = &Spec::largest_side, .usual = 10'000, .below = 1e9}}};

inline constexpr std::array<OptimizerFlag, 1> kNesterov = {
    {{.name = "nesterov", .value = &Spec::nesterov}}};
inline constexpr std::array<OptimizerFlag, 1> kAmsgrad = {
    {{.name = "amsgrad", .value = &Spec::amsgrad}}};
inline constexpr std::array<OptimizerFlag, 1> kCentered = {
    {{.name = "centered", .value = &Spec::centered}}};
inline constexpr std::array<OptimizerFlag, 2> kMuonFlags = {
    {{.name = "nesterov", .value = &Spec::nesterov, .usual = true},
     {.name = "match_rms", .value = &Spec::match_rms}}};

inline constexpr std::array<OptimizerState, 1> kSgdStates = {
    {{.name = "momentum", .unless_zero = &Spec::momentum}}};
inline constexpr std::array<OptimizerState, 3> kAdamStates = {
    {{.name = "exp_avg"},
     {.name = "exp_avg_sq"},
     {.name = "max_exp_avg_sq", .if_set = &Spec::amsgrad}}};
inline constexpr std::array<OptimizerState, 2> kMomentStates = {
    {{.name = "exp_avg"}, {.name = "exp_avg_sq"}}};
inline constexpr std::array<OptimizerState, 3> kRmsPropStates = {
    {{.name = "square_avg"},
     {.name = "momentum", .unless_zero = &Spec::momentum},
     {.name = "grad_avg", .if_set = &Spec::centered}}};
inline constexpr std::array<OptimizerState, 1> kAdagradStates = {
    {{.name = "sum", .initial = &Spec::initial_accumulator}}};
inline constexpr std::array<OptimizerState, 1> kLionStates = {{{.name = "exp_avg"}}};
inline constexpr std::array<OptimizerState, 1> kAsgdStates = {{{.name = "ax"}}};
inline constexpr std::array<OptimizerState, 1> kLarsStates = {{{.name = "momentum"}}};
inline constexpr std::array<OptimizerState, 3> kAdafactorStates = {
    {{.name = "row_var", .shape = StateShape::Rows},
     {.name = "col_var", .shape = StateShape::Columns},
     {.name = "variance", .shape = StateShape::OfVectors}}};
inline constexpr std::array<OptimizerState, 3> kMuonStates = {
    {{.name = "momentum", .shape = StateShape::OfMatrices},
     {.name = "exp_avg", .shape = StateShape::OfOthers},
     {.name = "exp_avg_sq", .shape = StateShape::OfOthers}}};

/// The first two are AdamW's, too.
inline constexpr std::array<OptimizerState, 6> kSoapStates = {
    {{.name = "exp_avg"},
     {.name = "exp_avg_sq"},
     {.name = "row_pairs", .shape = StateShape::RowPairs},
     {.name = "column_pairs", .shape = StateShape::ColumnPairs},
     {.name = "row_basis", .shape = StateShape::RowPairs},
     {.name = "column_basis", .shape = StateShape::ColumnPairs}}};

}  // namespace detail

inline constexpr std::array<OptimizerTraits, 14> kOptimizers = {
    {{.kind = OptimizerKind::Sgd,
      .name = "sgd",
      .title = "SGD",
      .parameters = detail::kMomentum,
      .flags = detail::kNesterov,
      .states = detail::kSgdStates,
      .steps_add_up = true},
     {.kind = OptimizerKind::Adam,
      .name = "adam",
      .title = "Adam",
      .parameters = detail::kMoments,
      .flags = detail::kAmsgrad,
      .states = detail::kAdamStates},
     {.kind = OptimizerKind::AdamW,
      .name = "adamw",
      .title = "AdamW",
      .parameters = detail::kMoments,
      .flags = detail::kAmsgrad,
      .states = detail::kAdamStates},
     {.kind = OptimizerKind::NAdam,
      .name = "nadam",
      .title = "NAdam",
      .parameters = detail::kOfNAdam,
      .states = detail::kMomentStates},
     {.kind = OptimizerKind::NAdamW,
      .name = "nadamw",
      .title = "NAdamW",
      .parameters = detail::kOfNAdam,
      .states = detail::kMomentStates,
      .in_torch = false},
     {.kind = OptimizerKind::RmsProp,
      .name = "rmsprop",
      .title = "RMSprop",
      .parameters = detail::kOfRmsProp,
      .flags = detail::kCentered,
      .states = detail::kRmsPropStates},
     {.kind = OptimizerKind::Adagrad,
      .name = "adagrad",
      .title = "Adagrad",
      .parameters = detail::kOfAdagrad,
      .states = detail::kAdagradStates},
     {.kind = OptimizerKind::Lion,
      .name = "lion",
      .title = "Lion",
      .parameters = detail::kOfLion,
      .states = detail::kLionStates,
      .in_torch = false},
     {.kind = OptimizerKind::Asgd,
      .name = "asgd",
      .title = "ASGD",
      .parameters = detail::kOfAsgd,
      .states = detail::kAsgdStates},
     {.kind = OptimizerKind::Lamb,
      .name = "lamb",
      .title = "LAMB",
      .parameters = detail::kOfLamb,
      .states = detail::kMomentStates,
      .in_torch = false,
      .needs_whole_weight = true},
     {.kind = OptimizerKind::Lars,
      .name = "lars",
      .title = "LARS",
      .parameters = detail::kOfLars,
      .states = detail::kLarsStates,
      .in_torch = false,
      .needs_whole_weight = true},
     {.kind = OptimizerKind::Adafactor,
      .name = "adafactor",
      .title = "Adafactor",
      .parameters = detail::kOfAdafactor,
      .states = detail::kAdafactorStates,
      .needs_whole_weight = true,
      .usual_state = 0.1},
     {.kind = OptimizerKind::Muon,
      .name = "muon",
      .title = "Muon",
      .parameters = detail::kOfMuon,
      .flags = detail::kMuonFlags,
      .states = detail::kMuonStates,
      .needs_whole_weight = true,
      .parts_weights = true,
      .hidden_matrices_only = true,
      .usual_state = 1.5},
     {.kind = OptimizerKind::Soap,
      .name = "soap",
      .title = "SOAP",
      .parameters = detail::kOfSoap,
      .states = detail::kSoapStates,
      .in_torch = false,
      .needs_whole_weight = true,
      .parts_weights = true,
      .usual_state = 6}}};

constexpr const OptimizerTraits& traits(OptimizerKind kind) {
  return kOptimizers[static_cast<size_t>(kind)];
}
constexpr std::string_view to_string(OptimizerKind kind) { return traits(kind).name; }

/// Whether the optimiser has this parameter: takes(OptimizerKind::Adam, &OptimizerSpec::beta1).
constexpr bool takes(OptimizerKind kind, double OptimizerSpec::*parameter) {
  for (const OptimizerParameter& own : traits(kind).parameters) {
    if (own.value == parameter) return true;
  }
  return false;
}
constexpr bool takes(OptimizerKind kind, bool OptimizerSpec::*flag) {
  if (flag == detail::kMaximize.value) return true;
  for (const OptimizerFlag& own : traits(kind).flags) {
    if (own.value == flag) return true;
  }
  return false;
}

/// `spec` with this optimiser, whose own parameters have their usual values.
inline OptimizerSpec usual_spec(OptimizerKind kind, OptimizerSpec spec = {}) {
  spec.kind = kind;
  for (const OptimizerParameter& own : traits(kind).parameters) spec.*own.value = own.usual;
  for (const OptimizerFlag& own : traits(kind).flags) spec.*own.value = own.usual;
  return spec;
}

/// The state that is a running mean of the weight; always the last one.
inline constexpr std::string_view kAverage = "average";

/// The tensors kept per weight.
inline std::vector<OptimizerState> states(const OptimizerSpec& spec) {
  std::vector<OptimizerState> kept;
  for (const OptimizerState& state : traits(spec.kind).states) {
    const bool is_left_out = (state.unless_zero != nullptr && spec.*state.unless_zero == 0) ||
                             (state.if_set != nullptr && !(spec.*state.if_set));
    if (!is_left_out) kept.push_back(state);
  }
  if (spec.mean_step) kept.push_back({.name = "mean_step"});
  if (spec.averages) kept.push_back({.name = kAverage, .begins_as_weight = true});
  return kept;
}
inline size_t num_states(const OptimizerSpec& spec) { return states(spec).size(); }
/// Bytes of state per byte of weights, about: parameter_optimizers.h knows a model's.
inline double usual_state(const OptimizerSpec& spec) {
  const double usual = traits(spec.kind).usual_state;
  if (usual < 0) return static_cast<double>(num_states(spec));
  return usual + (spec.mean_step ? 1 : 0) + (spec.averages ? 1 : 0);
}

/// The shape of a state of a weight of this shape.
inline std::vector<int64_t> state_shape(const OptimizerSpec& spec, const OptimizerState& state,
                                        std::vector<int64_t> weight) {
  const size_t dims = weight.size();
  switch (state.shape) {
    case StateShape::OfWeight:
      return weight;
    case StateShape::Rows:
    case StateShape::Columns:
      if (dims < 2) return {0};
      weight[dims - (state.shape == StateShape::Rows ? 1 : 2)] = 1;
      return weight;
    case StateShape::OfVectors:
      return dims < 2 ? weight : std::vector<int64_t>{0};
    case StateShape::OfMatrices:
      return spec.as_matrix ? weight : std::vector<int64_t>{0};
    case StateShape::OfOthers:
      return spec.as_matrix ? std::vector<int64_t>{0} : weight;
    case StateShape::RowPairs:
    case StateShape::ColumnPairs: {
      if (!spec.as_matrix || dims != 2) return {0};
      const int64_t side = weight[state.shape == StateShape::RowPairs ? 0 : 1];
      if (static_cast<double>(side) > spec.largest_side) return {0};
      return {side, side};
    }
  }
  return weight;
}

/// Why replicas cannot share out the state; empty: they can.
inline std::string why_not_shared(const OptimizerSpec& spec) {
  if (traits(spec.kind).needs_whole_weight) {
    return fmt::format("{} needs whole weights, and replicas would have parts of them",
                       to_string(spec.kind));
  }
  if (!spec.averages) return {};
  return "evaluations need whole means of the weights, and replicas would have parts of them";
}

/// The parameter that schedules of the momentum change: the momentum, or beta1. Null: there is none
/// in use.
constexpr double OptimizerSpec::*momentum_parameter(const OptimizerSpec& spec) {
  if (takes(spec.kind, &OptimizerSpec::momentum))
    return spec.momentum == 0 ? nullptr : &OptimizerSpec::momentum;
  // Those of nadam are a product over all steps.
  const bool is_product = takes(spec.kind, &OptimizerSpec::momentum_decay);
  if (is_product || !takes(spec.kind, &OptimizerSpec::beta1)) return nullptr;
  return &OptimizerSpec::beta1;
}

/// Nothing when no optimiser has that name.
constexpr std::optional<OptimizerKind> find_optimizer(std::string_view name) {
  for (const OptimizerTraits& row : kOptimizers) {
    if (row.name == name) return row.kind;
  }
  return std::nullopt;
}

/// "sgd, adam or adamw": for messages and help texts.
inline std::string optimizer_names() {
  std::string names(kOptimizers.front().name);
  for (size_t i = 1; i < kOptimizers.size(); ++i) {
    names += i + 1 < kOptimizers.size() ? ", " : " or ";
    names += kOptimizers[i].name;
  }
  return names;
}

/// Throws ConfigError listing the names when `name` is none of them.
inline OptimizerKind parse_optimizer(std::string_view name) {
  if (const auto kind = find_optimizer(name)) return *kind;
  throw ConfigError(
      fmt::format("unknown optimiser '{:.40}', expected {}", name, optimizer_names()));
}

}  // namespace penstock::model
