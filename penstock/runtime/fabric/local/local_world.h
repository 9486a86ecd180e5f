// Worlds within one process. Usually all workers are one rank; several ranks, each with a pipeline
// and a thread of its own, are for tests of what ranks must decide together.
//
//   const std::unique_ptr<World> world = make_local_world(4);
//   auto worlds = make_local_ranks({0, 0, 1});   // worlds[1] is rank 1, with worker 2
#pragma once

#include <memory>
#include <vector>

#include "penstock/runtime/fabric/world.h"

namespace penstock::runtime {

/// One rank with all workers, on these devices; none: all on the CPU. Throws ConfigError as
/// validate(Site).
std::unique_ptr<World> make_local_world(int workers, std::vector<at::Device> device_of_worker = {});

/// One world per rank, by rank. Each is used by one thread. Throws ConfigError as validate(Site).
std::vector<std::unique_ptr<World>> make_local_ranks(const std::vector<int>& rank_of_worker);

}  // namespace penstock::runtime
