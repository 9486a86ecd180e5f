#include "penstock/runtime/fabric/mesh/testing_mesh_ranks.h"

#include <algorithm>
#include <thread>

#include "penstock/launch/free_port.h"

namespace penstock::runtime::testing {

namespace {

/// Connects the ranks, and calls set_up(hub) on each before its world is made.
template <class SetUp>
std::vector<std::unique_ptr<World>> make_ranks(const std::vector<int>& rank_of_worker,
                                               net::MeshOptions options, int servers,
                                               const std::vector<int>& host_of_rank, SetUp set_up) {
  options.ranks = 1 + *std::max_element(rank_of_worker.begin(), rank_of_worker.end()) + servers;
  options.port = static_cast<uint16_t>(launch::free_port("127.0.0.1"));
  std::vector<std::unique_ptr<World>> worlds(static_cast<size_t>(options.ranks));
  std::vector<std::jthread> ranks;
  for (int r = 0; r < options.ranks; ++r) {
    ranks.emplace_back(
        [&worlds, &rank_of_worker, &host_of_rank, options, servers, set_up, r]() mutable {
          options.rank = r;
          auto hub = make_mesh_hub(net::Mesh::connect(options));
          set_up(*hub);
          worlds[static_cast<size_t>(r)] =
              make_mesh_world(std::move(hub), rank_of_worker, servers, host_of_rank);
        });
  }
  ranks.clear();
  return worlds;
}

}  // namespace

std::vector<std::unique_ptr<World>> make_mesh_ranks(const std::vector<int>& rank_of_worker,
                                                    net::MeshOptions options, int servers,
                                                    const std::vector<int>& host_of_rank) {
  return make_ranks(rank_of_worker, options, servers, host_of_rank, [](MeshHub&) {});
}

std::vector<std::unique_ptr<World>> make_gloo_ranks(const std::vector<int>& rank_of_worker) {
  return make_ranks(rank_of_worker, {}, 0, {},
                    [](MeshHub& hub) { carry_by_gloo(hub, /*smallest=*/1); });
}

}  // namespace penstock::runtime::testing
