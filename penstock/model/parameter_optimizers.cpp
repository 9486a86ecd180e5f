#include "penstock/model/parameter_optimizers.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "penstock/util/error.h"

namespace penstock::model {

ParameterOptimizers::ParameterOptimizers(const Model& model, const OptimizerSpec& spec)
    : graph_(model.graph()) {
  optimizers_.push_back(make_optimizer(spec));
  if (spec.groups.empty()) return;
  std::map<std::string, size_t> groups;
  for (const ParameterGroup& group : spec.groups) {
    OptimizerSpec own = spec;
    own.groups.clear();
    own.rate_factor = group.rate_factor;
    own.weight_decay = group.weight_decay;
    for (const std::string& name : group.parameters) {
      if (!groups.emplace(name, optimizers_.size()).second)
        throw ConfigError(fmt::format("optimiser: '{}' is in two groups of parameters", name));
    }
    optimizers_.push_back(make_optimizer(own));
  }
  for (int l = 0; l < graph_.num_layers(); ++l) {
    const std::vector<ParameterSpec> parameters = model.layer(LayerId{l}).parameters();
    for (size_t p = 0; p < parameters.size(); ++p) {
      const graph::ParameterRef parameter{LayerId{l}, static_cast<int>(p)};
      if (graph_.owner(parameter) != parameter) continue;
      const std::string name = state_key(graph_.layer(LayerId{l}).name, parameters[p]);
      const auto found = groups.find(name);
      if (found == groups.end()) {
        throw ConfigError(fmt::format(
            "optimiser: the parameter '{}' is in no group, but the model trains it", name));
      }
      group_of_.emplace(parameter, found->second);
    }
  }
}

const Optimizer& ParameterOptimizers::of(const graph::ParameterRef& parameter) const {
  if (group_of_.empty()) return general();
  return *optimizers_.at(group_of_.at(graph_.owner(parameter)));
}

}  // namespace penstock::model
