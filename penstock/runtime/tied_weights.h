// Where the copies of tied weights lie when a model is cut into stages (graph::tie_groups).
#pragma once

#include <cstddef>
#include <vector>

#include "penstock/model/model.h"
#include "penstock/runtime/fabric/norm_exchange.h"
#include "penstock/runtime/stage_module.h"

namespace penstock::runtime {

/// The copies that one stage holds. Weights are numbered as in the stage's flat list.
struct StageTies {
  /// Groups that lie in this stage entirely: weights in the order of their layers.
  std::vector<std::vector<size_t>> inside;
  /// Copies of groups that lie in several stages: `copy` counts through the group in the order of
  /// the layers.
  struct Copy {
    size_t group = 0;
    size_t copy = 0;
    size_t weight = 0;
  };
  std::vector<Copy> across;
  /// Per weight: whether this stage counts it in the norm: neither a copy of an earlier one nor
  /// shared with other stages, whose sum the fabric counts.
  std::vector<bool> counts;
};

struct TiedWeights {
  std::vector<StageTies> stages;
  std::vector<TieGroup> groups;  ///< those that lie in several stages
};

TiedWeights find_tied_weights(const model::Model& model, const std::vector<StageId>& stage_of_layer,
                              const std::vector<const StageModule*>& stages);

}  // namespace penstock::runtime
