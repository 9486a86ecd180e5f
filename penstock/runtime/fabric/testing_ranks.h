// The ranks of a job as threads of one test, over every fabric that joins ranks.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "penstock/runtime/fabric/local/local_world.h"
#include "penstock/runtime/fabric/mesh/testing_mesh_ranks.h"

namespace penstock::runtime::testing {

using MakeRanks =
    std::function<std::vector<std::unique_ptr<World>>(const std::vector<int>& rank_of_worker)>;

struct RankRig {
  std::string name;
  MakeRanks make;
  friend std::ostream& operator<<(std::ostream& out, const RankRig& rig) { return out << rig.name; }
};

/// Ranks that share memory, and ranks that are joined by sockets.
inline std::vector<RankRig> rank_rigs() {
  return {{"local", [](const std::vector<int>& ranks) { return make_local_ranks(ranks); }},
          {"mesh", [](const std::vector<int>& ranks) { return make_mesh_ranks(ranks); }}};
}

/// Calls body(world, rank) in a thread per rank and returns what each threw.
template <class Body>
std::vector<std::string> on_ranks(const RankRig& rig, const std::vector<int>& rank_of_worker,
                                  Body body) {
  auto worlds = rig.make(rank_of_worker);
  std::vector<std::string> failures(worlds.size());
  std::vector<std::jthread> threads;
  for (size_t r = 0; r < worlds.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        body(*worlds[r], r);
      } catch (const std::exception& error) {
        failures[r] = error.what();
      }
      // As a process that ends: the others are told.
      worlds[r].reset();
    });
  }
  threads.clear();
  return failures;
}

}  // namespace penstock::runtime::testing
