// That the layers of a model for teams are connected as those of the whole one: which value each
// reads, through what stands between members, and whose gradient comes back to whom. A part of
// check_types().
#pragma once

#include <string>
#include <vector>

#include "penstock/shard/shard.h"

namespace penstock::shard {

/// Empty: it is. Each says the layer and what it reads instead. O(layers + connections).
std::vector<std::string> check_wiring(const ShardedModel& sharded);

}  // namespace penstock::shard
