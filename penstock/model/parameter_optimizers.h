// The optimisers of a model's parameters: one for all, or one for each group of them
// (OptimizerSpec::groups).
//
//   ParameterOptimizers optimizers(model, spec);
//   optimizers.of({layer, 0}).step(...);
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "penstock/graph/model_graph.h"
#include "penstock/model/model.h"
#include "penstock/model/optimizer.h"
#include "penstock/model/optimizer_spec.h"

namespace penstock::model {

class ParameterOptimizers {
 public:
  /// Throws ConfigError as make_optimizer(), and for a parameter that is in no group or in two. A
  /// tied parameter has the group of its owner.
  ParameterOptimizers(const Model& model, const OptimizerSpec& spec);

  /// That of a parameter; lives as long as this.
  const Optimizer& of(const graph::ParameterRef& parameter) const;
  /// That of the spec without groups; all have its state_names().
  const Optimizer& general() const { return *optimizers_.front(); }

 private:
  graph::ModelGraph graph_;
  std::vector<std::unique_ptr<Optimizer>> optimizers_;  ///< the general one, then the groups'
  std::map<graph::ParameterRef, size_t> group_of_;      ///< of owners; empty: no groups
};

}  // namespace penstock::model
