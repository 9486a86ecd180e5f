#include "penstock/model/parameter_optimizers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "penstock/util/error.h"

namespace penstock::model {
namespace {

/// A parameter that the model trains, and no other layer's.
struct OwnParameter {
  graph::ParameterRef place;
  std::string name;
  Shape shape;
};

std::vector<OwnParameter> own_parameters(const Model& model) {
  const graph::ModelGraph& graph = model.graph();
  std::vector<OwnParameter> own;
  for (int l = 0; l < graph.num_layers(); ++l) {
    const std::vector<ParameterSpec> parameters = model.layer(LayerId{l}).parameters();
    for (size_t p = 0; p < parameters.size(); ++p) {
      const graph::ParameterRef place{LayerId{l}, static_cast<int>(p)};
      if (graph.owner(place) != place) continue;
      own.push_back(
          {place, state_key(graph.layer(LayerId{l}).name, parameters[p]), parameters[p].shape});
    }
  }
  return own;
}

std::map<std::string, const ParameterGroup*> groups_by_name(const OptimizerSpec& spec) {
  std::map<std::string, const ParameterGroup*> groups;
  for (const ParameterGroup& group : spec.groups) {
    OptimizerSpec own = spec;
    own.rate_factor = group.rate_factor;
    own.weight_decay = group.weight_decay;
    make_optimizer(own);  // for what it refuses
    for (const std::string& name : group.parameters) {
      if (!groups.emplace(name, &group).second)
        throw ConfigError(fmt::format("optimiser: '{}' is in two groups of parameters", name));
    }
  }
  return groups;
}

/// The spec as the parameter's group has it. Throws ConfigError where it is in none.
OptimizerSpec in_its_group(OptimizerSpec own, const OwnParameter& parameter,
                           const std::map<std::string, const ParameterGroup*>& groups) {
  const auto found = groups.find(parameter.name);
  if (found == groups.end()) {
    throw ConfigError(fmt::format(
        "optimiser: the parameter '{}' is in no group, but the model trains it", parameter.name));
  }
  const ParameterGroup& group = *found->second;
  own.rate_factor = group.rate_factor;
  own.weight_decay = group.weight_decay;
  own.as_matrix = !group.by_adamw;
  if (traits(own.kind).parts_weights && own.as_matrix && parameter.shape.size() != 2) {
    throw ConfigError(
        fmt::format("optimiser: {} is for matrices; '{}' has the shape [{}]: AdamW can step it",
                    to_string(own.kind), parameter.name, fmt::join(parameter.shape, ", ")));
  }
  return own;
}

}  // namespace

ParameterOptimizers::ParameterOptimizers(const Model& model, const OptimizerSpec& spec)
    : graph_(model.graph()) {
  OptimizerSpec general = spec;
  general.groups.clear();
  optimizers_.push_back(make_optimizer(general));
  const bool parts = traits(spec.kind).parts_weights;
  const bool spares_vectors = !spec.decays_vectors && spec.weight_decay != 0;
  if (spec.groups.empty() && !parts && !spares_vectors) return;
  const auto groups = groups_by_name(spec);
  const std::vector<OwnParameter> own = own_parameters(model);
  for (const OwnParameter& parameter : own) {
    if (!spec.groups.empty()) {
      choose(parameter.place, in_its_group(general, parameter, groups));
      continue;
    }
    OptimizerSpec one = general;
    const LayerId layer = parameter.place.layer;
    const bool is_table = model.layer(layer).kind().find("embedding") != std::string::npos;
    const bool is_edge = layer == own.front().place.layer || layer == own.back().place.layer;
    if (parts) {
      one.as_matrix = parameter.shape.size() == 2 && !is_table &&
                      !(is_edge && traits(spec.kind).hidden_matrices_only);
    }
    if (spares_vectors && parameter.shape.size() < 2) one.weight_decay = 0;
    choose(parameter.place, one);
  }
}

void ParameterOptimizers::choose(const graph::ParameterRef& parameter, const OptimizerSpec& spec) {
  const auto is_same = [&spec](const std::unique_ptr<Optimizer>& other) {
    const OptimizerSpec& made = other->spec();
    return made.rate_factor == spec.rate_factor && made.weight_decay == spec.weight_decay &&
           made.as_matrix == spec.as_matrix;
  };
  size_t place = 0;
  while (place < optimizers_.size() && !is_same(optimizers_[place])) ++place;
  if (place == optimizers_.size()) optimizers_.push_back(make_optimizer(spec));
  optimizer_of_.emplace(parameter, place);
}

const Optimizer& ParameterOptimizers::of(const graph::ParameterRef& parameter) const {
  if (optimizer_of_.empty()) return general();
  return *optimizers_.at(optimizer_of_.at(graph_.owner(parameter)));
}

double state_per_weight(const Model& model, const OptimizerSpec& spec) {
  const ParameterOptimizers optimizers(model, spec);
  const auto numbers = [](const Shape& shape) {
    return std::accumulate(shape.begin(), shape.end(), 1.0, std::multiplies<>());
  };
  double weights = 0;
  double kept = 0;
  for (const OwnParameter& parameter : own_parameters(model)) {
    weights += numbers(parameter.shape);
    const OptimizerSpec& own = optimizers.of(parameter.place).spec();
    for (const OptimizerState& state : states(own))
      kept += numbers(state_shape(own, state, parameter.shape));
  }
  return weights == 0 ? 0 : kept / weights;
}

}  // namespace penstock::model
