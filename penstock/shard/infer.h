// Which weights of a model are spread over the teams of its stages, and what type each value has
// then. As many candidates as can be are spread; where an operation refuses a part, those that lead
// to it stay whole, and the types are found again.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "penstock/model/model.h"
#include "penstock/shard/layer_rules.h"
#include "penstock/util/ids.h"

namespace penstock::shard {

struct ShardOptions {
  /// A weight is spread only where it has at least as many numbers, with the others of its region,
  /// as members exchange for one sample because of it. An exchange inside of a layer's code counts
  /// as 32,768 numbers more.
  bool only_worthwhile = true;
  /// The model's output may stay in parts along its last dimension, for a loss that takes them.
  bool keeps_output_parts = false;
  /// By stage: between the layers whose weights are spread, members have a part of the places of
  /// sequences (sequence parallelism, Korthikanti et al. 2022). Empty: no stage does so.
  std::vector<bool> sequence = {};
};

struct Placement {
  Regions regions;
  std::vector<LayerTypes> layers;                        ///< by layer of the model
  std::map<graph::ValueRef, Type> values;                ///< of the layers' outputs
  std::map<graph::ParameterRef, std::string> why_whole;  ///< of candidates that stay whole
};

/// `team_of_layer`: members of the layer's team, at least 1. Throws ConfigError for sequences whose
/// places a team cannot share out.
Placement infer(const model::Model& model, const std::vector<StageId>& stage_of_layer,
                const std::vector<int>& team_of_layer, const ShardOptions& options);

/// The shapes that a rule sees.
struct LayerShapes {
  std::vector<model::Shape> inputs;
  std::vector<model::Shape> outputs;
};
LayerShapes shapes_of(const model::Model& model, LayerId id);

}  // namespace penstock::shard
