// Where the copies of tied weights are when a model is cut into stages (graph::tie_groups).
#pragma once

#include <cstddef>
#include <vector>

#include "penstock/model/model.h"
#include "penstock/runtime/fabric/norm_exchange.h"
#include "penstock/runtime/stage_module.h"

namespace penstock::runtime {

/// The copies that one stage holds. Weights are numbered as in the stage's flat list.
struct StageTies {
  /// Groups that are completely in this stage: weights in the order of their layers.
  std::vector<std::vector<size_t>> inside;
  /// Copies of groups that are in several stages: `copy` numbers the copies of the group in the
  /// order of the layers.
  struct Copy {
    size_t group = 0;
    size_t copy = 0;
    size_t weight = 0;
  };
  std::vector<Copy> across;
  /// Per weight: whether this stage counts it in the norm. It does not count a copy of an earlier
  /// weight, a weight shared with other stages, whose sum the fabric counts, or one that every
  /// member of a team has whole, but in the first.
  std::vector<bool> counts;
};

struct TiedWeights {
  std::vector<StageTies> stages;
  std::vector<TieGroup> groups;  ///< those that are in several stages
};

TiedWeights find_tied_weights(const model::Model& model, const std::vector<StageId>& stage_of_layer,
                              const std::vector<const StageModule*>& stages);

}  // namespace penstock::runtime
