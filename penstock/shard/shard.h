// A model whose stages' weights are spread over teams (Shoeybi et al. 2019, Korthikanti et al.
// 2022): each layer of such a stage once per member, with a part of the weights, and what crosses
// the members between them. The runtime sees a model like any other.
//
//   const ShardedModel sharded = shard(model, stage_of_layer, {2, 1});
//   Pipeline pipeline(sharded.model, sharded.stage_of_layer, replicas, ...);
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/model/model.h"
#include "penstock/model/team_functions.h"
#include "penstock/shard/infer.h"
#include "penstock/shard/shardable.h"
#include "penstock/util/ids.h"

namespace penstock::shard {

/// What of a stage is spread.
struct Shares {
  int64_t numbers = 0;                         ///< trained numbers of the stage
  int64_t spread_numbers = 0;                  ///< of those: in parts
  std::vector<std::string> whole_layers = {};  ///< that every member has whole, with their reasons
};

struct ShardedModel {
  model::Model model;
  /// Of the model's layers: member m of stage s is stage (teams before s) + m
  /// (schedule::with_teams()).
  std::vector<StageId> stage_of_layer;
  std::vector<Shares> shares;  ///< per stage of the whole model
  /// The output is the member's part; nothing: it is whole.
  std::optional<model::Division> output_parts = {};
  Regions regions;
  std::vector<LayerTypes> types;  ///< per layer of the model: what check_types() proves
};

/// `teams`: members of each stage's team, at least 1; the model's whole() is `model`. Throws
/// ConfigError for a weight that stages with teams of different sizes share.
ShardedModel shard(const std::shared_ptr<const model::Model>& model,
                   const std::vector<StageId>& stage_of_layer, const std::vector<int>& teams,
                   const ShardOptions& options = {});

}  // namespace penstock::shard
