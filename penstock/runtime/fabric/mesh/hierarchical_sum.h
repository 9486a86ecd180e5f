// Sums over ranks in two steps: first inside each machine, then between the machines.
//
//   replicas --parts--> gatherer of the shard --one part per machine--> owner of the shard
//   replicas <--sums--- gatherer of the shard <--------sum------------- owner of the shard
//
// Each shard of the gradients has a gatherer in every machine, one of its ranks in turn, so that
// all of them add and send: what BytePS calls the communication service, with the CPU adding what
// the devices of a machine have made (OSDI 2020, section 4.3). Owners are machines and servers,
// with the shares of `summation`. Inside a machine gradient groups are added in their order,
// between them machines in theirs: deterministic, but other bits than one thread's.
//
// Bytes through a machine's NIC, with M bytes of gradients, n machines of which each owns the share
// g: (1 - g) M + (n - 1) g M, whatever the number of its replicas and groups. Inside, what
// `ordered` has between the machine's replicas: none between those of one rank.
#pragma once

#include <vector>

#include "penstock/runtime/fabric/mesh/mesh_sum.h"
#include "penstock/util/process/mutex.h"

namespace penstock::runtime {

/// The ranks that hold replicas of a stage, machine by machine; the same on every rank.
struct Machines {
  std::vector<std::vector<int>> ranks;

  /// Who gathers a shard in a machine.
  int gatherer(size_t machine, size_t shard) const {
    return ranks[machine][shard % ranks[machine].size()];
  }
};

/// `host_of_rank` names hosts by any numbers; machines come in the order of their first replica.
Machines machines_of(const std::vector<int>& rank_of_replica, const std::vector<int>& host_of_rank);

class HierarchicalSum : public MeshSum {
 public:
  /// `setup`: of all replicas; uses channels(replicas) + channels(machines) channels. `shares`: per
  /// machine, then per server.
  HierarchicalSum(StageSumSetup setup, Machines machines, const std::vector<double>& shares);
  static uint32_t channels(size_t replicas) { return 2 * StageSum::channels(replicas); }

  void begin() override;
  void start(int replica, size_t bucket, Partials partials) override;
  WaitResult finish(int replica, size_t bucket, BucketSum& sum, Wait& wait) override;

 private:
  /// A shard that this rank adds up between machines.
  struct Joined {
    uint64_t round = 0;
    std::vector<Contribution> contributions;  ///< by machine
    int missing = 0;                          ///< machines
  };
  int num_machines() const { return static_cast<int>(machines_.ranks.size()); }
  int rank_of_joiner(size_t shard) const;
  bool joins(size_t shard) const { return rank_of_joiner(shard) == setup_.mesh.rank(); }
  bool gathers(int machine, size_t shard) const {
    return machines_.gatherer(static_cast<size_t>(machine), shard) == setup_.mesh.rank();
  }
  net::Tag joining_tag(Phase phase, int machine, size_t shard, uint64_t round) const;

  void added(size_t shard, uint64_t round, model::Tensors sums) override;
  void post_part_of(int machine, size_t shard, uint64_t round);
  void join(int machine, size_t shard, Contribution contribution);
  void join_up(size_t shard);

  Machines machines_;
  int own_ = -1;               ///< this rank's machine; -1: a server
  std::vector<int> local_of_;  ///< by replica: its number among those of this machine, or -1
  std::vector<int> server_ranks_;
  uint32_t joining_channel_;
  Mutex mutex_;
  std::vector<Joined> joined_ GUARDED_BY(mutex_);  ///< by shard
};

}  // namespace penstock::runtime
