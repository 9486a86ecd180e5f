// A plan for those who stay with PyTorch: where torch.distributed.pipelining shall cut the model,
// which it can do only before a submodule, and where it can send what crosses.
//
//   PytorchSplit split = pytorch_split(plan, profile, cluster);
//   // split.cuts[0].module == "layers.7": pipeline(model, ..., split_spec={that: BEGINNING})
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

/// The block that a module belongs to: its name up to the last part that is a number, or ends with
/// one and has modules inside ("layers.7.attention.query": "layers.7"); a module in no block is its
/// own ("head"). Inside of a block tensors may cross that are not contiguous, such as transposed
/// heads of attention, which PyTorch refuses to send. Most blocks hand contiguous ones on.
std::string block_of_module(const std::string& module);

/// Whether the pattern fits the module's name: `*` and `?` stand for characters other than a dot,
/// `[...]` for one of a set ("layers.*", "*.layers.[02468]").
bool matches_module(const std::string& pattern, const std::string& module);

/// Moves the plan's cuts to the nearest places, in time, before blocks; with `cut_at`, before
/// modules that fit this pattern. No value that the profile knows not to be contiguous crosses them
/// (profile::LayerCost::strided_outputs). Stages that are not consecutive layers are cut where the
/// layers before take as long. Throws NotForPytorch saying what PyTorch has not: replicas,
/// schedules that do not flush; or that the model has too few such modules.
PytorchSplit pytorch_split(const plan::Plan& plan, const profile::Profile& profile,
                           const cluster::Cluster& cluster, const std::string& cut_at = "");

}  // namespace penstock::planner
