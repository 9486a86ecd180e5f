// Proves from types that a model for teams computes what the whole one does: what each operator may
// read, which weights it may have with it, and what that makes. Knows nothing of how the model was
// spread (infer.h): whoever changes a part, a sum or a slice is found.
//
//   for (const std::string& error : check_types(sharded)) ...
//     // "layer 'fc2.bias-m0' (team_bias) reads 'fc2-m0': expected equal, found partial"
#pragma once

#include <string>
#include <vector>

#include "penstock/shard/shard.h"

namespace penstock::shard {

/// Empty: the model is sound. Each says the layer, its operator and the types that do not fit, or
/// the members that differ: they must meet in the same collectives in the same order.
/// O(layers).
std::vector<std::string> check_types(const ShardedModel& sharded);

}  // namespace penstock::shard
