// The optimisers of a model's parameters: one for all, or one for each group of them
// (OptimizerSpec::groups), and for the matrices and the rest of it where the optimiser parts them
// (Muon, SOAP).
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
  /// tied parameter has the group of its owner. Where the optimiser parts weights, those of two
  /// dimensions are stepped as matrices (OptimizerSpec) unless their group says otherwise; without
  /// groups, Muon leaves out those of the first and of the last layer with weights, and tables of
  /// embeddings (Jordan et al. 2024: hidden layers).
  ParameterOptimizers(const Model& model, const OptimizerSpec& spec);

  /// That of a parameter; lives as long as this.
  const Optimizer& of(const graph::ParameterRef& parameter) const;
  /// That of the spec without groups; all have its state_names().
  const Optimizer& general() const { return *optimizers_.front(); }

 private:
  /// Puts the parameter's optimiser where of() finds it.
  void choose(const graph::ParameterRef& parameter, const OptimizerSpec& spec);

  graph::ModelGraph graph_;
  /// The general one first. By rate, decay and role, each once.
  std::vector<std::unique_ptr<Optimizer>> optimizers_;
  std::map<graph::ParameterRef, size_t> optimizer_of_;  ///< of owners; empty: the general one
};

/// Bytes of optimiser state per byte of the model's weights, over all of them.
double state_per_weight(const Model& model, const OptimizerSpec& spec);

}  // namespace penstock::model
