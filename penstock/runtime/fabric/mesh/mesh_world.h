// Ranks that are processes, on one machine or several, joined by a net::Mesh.
//
//   auto hub = make_mesh_hub(net::Mesh::connect({.rank = 1, .ranks = 4, ...}));
//   auto world = make_mesh_world(hub, {0, 1, 2, 3});
//   Pipeline pipeline(model, ..., {.world = world.get()});
//
// Messages between workers of one rank go by reference as in one process; between ranks each tensor
// travels once, from the sender's memory to the receiver's. Small things (losses, the stop, norms,
// failures) go over rank 0. docs/fabrics.md says how many bytes each call sends.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "penstock/net/mesh.h"
#include "penstock/runtime/fabric/world.h"

namespace penstock::runtime {

class MeshHub;

/// Starts the mesh, which must not be started yet. Lives as long as a world that was made of it.
std::shared_ptr<MeshHub> make_mesh_hub(std::unique_ptr<net::Mesh> mesh);

/// `measure` gets the hub's mesh and a run on it that nothing else uses, between the runs of
/// worlds: how links are measured (probe::measure_link). Collective.
void between_runs(MeshHub& hub, const std::function<void(net::Mesh&, uint32_t run)>& measure);

/// This rank's world. Several may be made of one hub, one after another, on every rank the same
/// ones: one to agree on a plan, say, then that of the plan. The last `servers` ranks have no
/// worker and only add gradients; every other rank has one (validate(Site)). `host_of_rank` and
/// `device_of_worker`: as in Site.
std::unique_ptr<World> make_mesh_world(std::shared_ptr<MeshHub> hub,
                                       std::vector<int> rank_of_worker, int servers = 0,
                                       std::vector<int> host_of_rank = {},
                                       std::vector<at::Device> device_of_worker = {});

}  // namespace penstock::runtime
