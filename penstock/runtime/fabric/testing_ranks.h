// The ranks of a job as threads of one test, over every fabric that joins ranks.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "penstock/runtime/fabric/c10d/gloo.h"
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

/// Ranks that share memory, ranks that are joined by sockets, and by Gloo where it is there.
inline std::vector<RankRig> rank_rigs() {
  std::vector<RankRig> rigs{
      {"local", [](const std::vector<int>& ranks) { return make_local_ranks(ranks); }},
      {"mesh", [](const std::vector<int>& ranks) { return make_mesh_ranks(ranks); }}};
  if (has_gloo()) rigs.push_back({"gloo", make_gloo_ranks});
  return rigs;
}

/// Sums all buckets of a stage.
inline WaitResult sum_all(Fabric& fabric, StageId stage, int replica, const Partials& partials,
                          model::Tensors& sums, Wait& wait) {
  const std::vector<size_t>& ends = fabric.bucket_ends(stage);
  const auto part_of = [&](const GroupGradients& group, size_t bucket) {
    const auto begin = group.sums.begin();
    return GroupGradients{
        group.group,
        model::Tensors(begin + (bucket == 0 ? 0 : static_cast<int64_t>(ends[bucket - 1])),
                       begin + static_cast<int64_t>(ends[bucket]))};
  };
  for (size_t bucket = 0; bucket < ends.size(); ++bucket) {
    Partials parts;
    for (const GroupGradients& group : partials) parts.push_back(part_of(group, bucket));
    fabric.start_sum(stage, replica, bucket, std::move(parts));
  }
  model::Tensors all;
  for (size_t bucket = 0; bucket < ends.size(); ++bucket) {
    BucketSum some;
    const WaitResult result = fabric.finish_sum(stage, replica, bucket, some, wait);
    if (result != WaitResult::Ready) return result;
    all.insert(all.end(), some.sums.begin(), some.sums.end());
  }
  sums = std::move(all);
  return WaitResult::Ready;
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
