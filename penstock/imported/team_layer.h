// What a layer of a program does in a team: the types of its values, and the steps of a member.
// Internal to imported.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "penstock/imported/program_layer.h"
#include "penstock/shard/shardable.h"

namespace penstock::imported {

struct TeamLayer {
  FlatProgram program;  ///< the member's steps; of all members alike, but for lengths
  shard::LayerTypes types;
  std::map<std::string, shard::Type> values = {};  ///< types of all that are not equal
};

/// `inputs`: as the layer reads them. `member`: whose lengths the steps have; null: those of the
/// whole. Throws Refused and InBlocks.
TeamLayer in_team(const LayerParts& parts, const FlatProgram& program,
                  const std::vector<shard::Type>& inputs, shard::Walk& walk,
                  const shard::Member* member);

}  // namespace penstock::imported
