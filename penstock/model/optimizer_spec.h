// The optimisers: one enumerator and one row each, and the spec that names one with its parameters.
// Plain values without tensors; programs without libtorch may include this.
// docs/extending.md says how to add one.
//
//   OptimizerSpec spec{.kind = OptimizerKind::Adam, .beta2 = 0.99};
//   traits(spec.kind).name == "adam"; num_states(spec) == 2;
//   parse_optimizer("adamw") == OptimizerKind::AdamW;
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/util/error.h"

namespace penstock::model {

/// In the order of kOptimizers.
enum class OptimizerKind : uint8_t { Sgd, Adam, AdamW };

/// Parameters with a learning rate and a weight decay of their own.
struct ParameterGroup {
  std::vector<std::string> parameters;  ///< names in the state dict
  double rate_factor = 1;               ///< times the learning rate of the step
  double weight_decay = 0;
};

struct OptimizerSpec {
  OptimizerKind kind = OptimizerKind::Sgd;
  double momentum = 0.9;  ///< sgd
  /// sgd: the step looks ahead along the momentum (Sutskever et al. 2013, as torch.optim does).
  bool nesterov = false;
  /// Added to the gradient (L2), as torch.optim does; adamw: taken off the weight.
  double weight_decay = 0;
  double beta1 = 0.9;  ///< adam, adamw
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double rate_factor = 1;  ///< times the learning rate of the step
  /// Empty: all parameters have the values above. Otherwise each is in exactly one group; names
  /// that the model does not train are allowed.
  std::vector<ParameterGroup> groups = {};
};

/// A parameter of optimisers, and the finite numbers that it may be.
struct OptimizerParameter {
  std::string_view name;                                   ///< in messages
  double OptimizerSpec::*value = nullptr;                  ///< where it stands
  double lowest = 0;                                       ///< of the allowed values
  bool above_lowest = false;                               ///< `lowest` itself is not allowed
  double below = std::numeric_limits<double>::infinity();  ///< all allowed values

  /// Why it cannot have this value; empty: it can.
  std::string refusal(double found) const {
    if (found >= lowest && found < below && !(above_lowest && found == lowest)) return {};
    const bool is_bounded = below < std::numeric_limits<double>::infinity();
    return fmt::format("{} must be {} {} and {}, found {}", name,
                       above_lowest ? "above" : "at least", lowest,
                       is_bounded ? fmt::format("below {}", below) : "finite", found);
  }
};

struct OptimizerTraits {
  OptimizerKind kind = OptimizerKind::Sgd;
  std::string_view name;   ///< on command lines and in files
  std::string_view title;  ///< the class of torch.optim
  /// The parameters that it has beside learning rate and weight decay.
  std::span<const OptimizerParameter> parameters;
  bool takes_nesterov = false;
  /// The tensors that it keeps per weight, each of the weight's shape and zero at first.
  std::span<const std::string_view> states;
  /// It keeps them only where this is not 0; null: always.
  double OptimizerSpec::*states_of = nullptr;
  /// Without weight decay, steps that replicas make apart are parts of one step of all.
  bool steps_add_up = false;
};

namespace detail {

/// Of all optimisers, and of each group of parameters.
inline constexpr std::array<OptimizerParameter, 2> kOfAll = {
    {{.name = "weight decay", .value = &OptimizerSpec::weight_decay},
     {.name = "the factor of a learning rate", .value = &OptimizerSpec::rate_factor}}};
inline constexpr std::array<OptimizerParameter, 1> kMomentum = {
    {{.name = "momentum", .value = &OptimizerSpec::momentum, .below = 1}}};
inline constexpr std::array<OptimizerParameter, 3> kMoments = {
    {{.name = "beta1", .value = &OptimizerSpec::beta1, .below = 1},
     {.name = "beta2", .value = &OptimizerSpec::beta2, .below = 1},
     {.name = "epsilon", .value = &OptimizerSpec::epsilon, .above_lowest = true}}};
inline constexpr std::array<std::string_view, 1> kMomentumState = {"momentum"};
inline constexpr std::array<std::string_view, 2> kMomentStates = {"exp_avg", "exp_avg_sq"};

}  // namespace detail

inline constexpr std::array<OptimizerTraits, 3> kOptimizers = {
    {{.kind = OptimizerKind::Sgd,
      .name = "sgd",
      .title = "SGD",
      .parameters = detail::kMomentum,
      .takes_nesterov = true,
      .states = detail::kMomentumState,
      .states_of = &OptimizerSpec::momentum,
      .steps_add_up = true},
     {.kind = OptimizerKind::Adam,
      .name = "adam",
      .title = "Adam",
      .parameters = detail::kMoments,
      .states = detail::kMomentStates},
     {.kind = OptimizerKind::AdamW,
      .name = "adamw",
      .title = "AdamW",
      .parameters = detail::kMoments,
      .states = detail::kMomentStates}}};

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

/// The names of the tensors kept per weight.
constexpr std::span<const std::string_view> states(const OptimizerSpec& spec) {
  const OptimizerTraits& row = traits(spec.kind);
  const bool keeps = row.states_of == nullptr || spec.*row.states_of != 0;
  return keeps ? row.states : std::span<const std::string_view>();
}
/// Their number, which is also the bytes of state per byte of weights.
constexpr size_t num_states(const OptimizerSpec& spec) { return states(spec).size(); }

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
