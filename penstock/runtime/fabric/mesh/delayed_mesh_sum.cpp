#include "penstock/runtime/fabric/mesh/delayed_mesh_sum.h"

#include <optional>
#include <utility>

namespace penstock::runtime {

DelayedMeshSum::DelayedMeshSum(StageSumSetup setup, const std::vector<double>& shares,
                               int64_t staleness)
    : MeshSum(std::move(setup), shares) {
  for (const Shard& shard : shards_) {
    owned_.push_back({.sum = DelayedSum(replicas(), shard.ranges.size(), staleness),
                      .rounds = std::vector<uint64_t>(static_cast<size_t>(replicas()), 0)});
  }
}

void DelayedMeshSum::contribute(int replica, size_t shard, Contribution contribution) {
  add_later(shard, [this, replica, shard, contribution = std::move(contribution)] {
    add(replica, shard, contribution);
  });
}

void DelayedMeshSum::add(int giver, size_t shard, const Contribution& contribution) {
  const bool last = !contribution.groups.empty() && contribution.groups.front() == kLastUpdate;
  struct Answer {
    int replica;
    uint64_t round;
    model::Tensors sums;
  };
  std::vector<Answer> answers;
  {
    MutexLock lock(mutex_);
    Owned& owned = owned_[shard];
    owned.sum.give(giver, last ? model::Tensors() : contribution.slices, last);
    for (int replica = 0; replica < replicas(); ++replica) {
      std::optional<model::Tensors> sums = owned.sum.take(replica);
      if (!sums) continue;
      uint64_t& round = owned.rounds[static_cast<size_t>(replica)];
      answers.push_back({replica, round++, *std::move(sums)});
    }
  }
  for (const Answer& answer : answers) {
    post_part(answer.replica, shard, answer.round + 1);
    give_result(answer.replica, shard, answer.round, answer.sums);
  }
}

}  // namespace penstock::runtime
