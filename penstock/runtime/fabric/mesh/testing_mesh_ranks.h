// The ranks of a mesh as threads of one process, for tests.
#pragma once

#include <memory>
#include <vector>

#include "penstock/runtime/fabric/mesh/mesh_world.h"

namespace penstock::runtime::testing {

/// The worlds of all ranks, by rank, joined over the loopback; `servers` more without workers.
/// `host_of_rank`: as in Site.
std::vector<std::unique_ptr<World>> make_mesh_ranks(const std::vector<int>& rank_of_worker,
                                                    net::MeshOptions options = {}, int servers = 0,
                                                    const std::vector<int>& host_of_rank = {});

/// The same, with Gloo for all parts of messages but empty ones.
std::vector<std::unique_ptr<World>> make_gloo_ranks(const std::vector<int>& rank_of_worker);

}  // namespace penstock::runtime::testing
