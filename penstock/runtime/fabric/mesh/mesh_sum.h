// Sums over ranks by owners: each shard of the gradients (gradient_shards.h) has an owner, a
// replica or a server. All replicas send it their groups' sums of the shard; the owner adds them in
// the order of the groups, as one thread would, and sends the result to all. So each sum is the
// same bit for bit as one thread's, whatever the timing, the shares and the number of servers.
//
// With 16 bits the owner rounds its own replica's parts as they arrive from the others, adds in
// float32, and rounds the result, its own copy, too (plan/sync_precision.h).
//
// The methods differ in the shares alone (plan/gradient_sync.h, which has the bytes of each):
// ordered, parameter-server, summation. Steps: 2. Bytes that a replica sends, with M bytes of
// gradients of which it owns the share g, n replicas and one group each: (1 - g) M of parts and
// (n - 1) g M of results; half of that in 16 bits. With own_shards_only the parts alone: a
// reduce-scatter.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "penstock/runtime/fabric/mesh/raw_message.h"
#include "penstock/runtime/fabric/mesh/stage_sum.h"
#include "penstock/util/process/mutex.h"

namespace penstock::runtime {

class MeshSum : public StageSum {
 public:
  using RankOfOwner = std::function<int(const Shard& shard, size_t number)>;

  /// `shares`: per replica, then per server.
  MeshSum(StageSumSetup setup, const std::vector<double>& shares);

  void begin() override;
  void start(int replica, size_t bucket, Partials partials) override;

 protected:
  /// Owners of shards that `shares` cut, but on ranks of the caller's choice.
  MeshSum(StageSumSetup setup, const std::vector<double>& shares, const RankOfOwner& rank_of_owner);

  /// What one replica gives to a shard: of each group the ranges, group by group; undefined where
  /// the group has no gradient of the weight.
  struct Contribution {
    std::vector<int64_t> groups;
    model::Tensors slices;
  };
  /// On owners: a replica's part of a shard has come, the next one after its result. In any thread.
  virtual void contribute(int replica, size_t shard, Contribution contribution);
  /// On owners: a shard has been added up, on the thread that adds. Gives it to all replicas.
  virtual void added(size_t shard, uint64_t round, model::Tensors sums);
  /// On owners: posts the receive of a part, if the replica is elsewhere.
  void post_part(int replica, size_t shard, uint64_t round);
  /// On owners: hands or sends the result of a shard to a replica.
  void give_result(int replica, size_t shard, uint64_t round, const model::Tensors& sums);
  /// On owners: the same to all of them, and waits for the parts of the next round.
  void give_results(size_t shard, uint64_t round, const model::Tensors& sums);

  /// Adds in the order of the groups; may use the first one's memory.
  model::Tensors sum_of_shard(const Shard& shard, std::vector<Contribution> contributions) const;
  void send_part(int peer, net::Tag tag, Contribution contribution);
  /// What send_part() has sent. Throws TransportError if it does not fit the shard.
  Contribution part_in(const RawMessage& message, size_t shard) const;
  void fail(std::exception_ptr failure);

 private:
  /// A shard that this rank adds up.
  struct Owned {
    uint64_t round = 0;
    std::vector<Contribution> contributions;  ///< by replica
    int missing = 0;                          ///< replicas
  };
  int rank_of_owner(size_t shard) const { return rank_of_owner_[shard]; }
  /// Of what this rank sends, by phase, if each replica has one group.
  std::array<double, 2> shares_of_phases() const;
  bool owns(size_t shard) const { return rank_of_owner(shard) == setup_.mesh.rank(); }

  // On owners.
  void on_part(int replica, size_t shard, const RawMessage& message);
  void add_up(size_t shard);

  // On replicas.
  Contribution contribution_of(size_t shard, const Partials& partials) const;
  void post_result(int replica, size_t shard, uint64_t round);

  std::vector<int> rank_of_owner_;  ///< by shard
  Mutex mutex_;
  std::vector<Owned> owned_ GUARDED_BY(mutex_);  ///< by shard
};

}  // namespace penstock::runtime
