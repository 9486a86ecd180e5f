// A plan for those who stay with PyTorch: where torch.distributed.pipelining shall cut the model,
// which it can do only before a submodule.
//
//   PytorchSplit split = pytorch_split(plan, profile, cluster);
//   // split.cuts[0].module == "layers.7.norm": pipeline(model, ..., split_spec={that: BEGINNING})
#pragma once

#include <string>
#include <vector>

#include "penstock/cluster/cluster.h"
#include "penstock/plan/plan.h"
#include "penstock/profile/profile.h"
#include "penstock/util/error.h"

namespace penstock::planner {

/// PyTorch does not run such a plan.
class NotForPytorch : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

struct PytorchCut {
  std::string module;  ///< the next stage begins with it
  /// Layers by which the cut has moved from the plan's: later (above 0) or earlier.
  int moved = 0;
};

struct PytorchSplit {
  plan::Plan plan;               ///< cut there, with everything predicted anew
  std::vector<PytorchCut> cuts;  ///< between its stages
};

/// The module in which the layer was made: its name up to the operator behind a '-', as the
/// importer names layers of exported programs ("layers.7-add_2"; "forward-add" of the model itself:
/// empty).
std::string module_of_layer(const std::string& layer);

/// Moves the plan's cuts to the nearest places, in time, where PyTorch can cut. Throws
/// NotForPytorch saying what PyTorch has not: replicas, schedules that do not flush, stages that
/// are not consecutive layers; or that the model has too few modules.
PytorchSplit pytorch_split(const plan::Plan& plan, const profile::Profile& profile,
                           const cluster::Cluster& cluster);

}  // namespace penstock::planner
