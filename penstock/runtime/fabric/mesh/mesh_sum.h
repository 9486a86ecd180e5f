// Sums over ranks by owners: each shard of the gradients (gradient_shards.h) has an owner, a
// replica or a server. All replicas send it their groups' sums of the shard; the owner adds them in
// the order of the groups, as one thread would, and sends the result to all. So each sum is the
// same bit for bit as one thread's, whatever the timing, the shares and the number of servers.
//
// The methods differ in the shares alone (plan/gradient_sync.h, which has the bytes of each):
// ordered, parameter-server, summation. Steps: 2. Bytes that a replica sends, with M bytes of
// gradients of which it owns the share g, n replicas and one group each: (1 - g) M of parts and
// (n - 1) g M of results.
#pragma once

#include <memory>
#include <vector>

#include "penstock/runtime/fabric/mesh/gradient_shards.h"
#include "penstock/runtime/fabric/mesh/raw_message.h"
#include "penstock/runtime/fabric/mesh/stage_sum.h"
#include "penstock/util/mutex.h"

namespace penstock::runtime {

class MeshSum : public StageSum, public std::enable_shared_from_this<MeshSum> {
 public:
  /// Uses the channels from setup.first_channel on. `shares`: per replica, then per server.
  MeshSum(StageSumSetup setup, const std::vector<double>& shares);

  static uint32_t channels(size_t replicas) { return static_cast<uint32_t>(2 * replicas); }

  void begin() override;
  void start(int replica, size_t bucket, Partials partials) override;
  WaitResult finish(int replica, size_t bucket, model::Tensors& sums, Wait& wait) override;
  void close() override;

 private:
  enum Phase : uint8_t { Parts, Results };
  /// What one replica gives to a shard: of each group the ranges, group by group; undefined where
  /// the group has no gradient of the weight.
  struct Contribution {
    std::vector<int64_t> groups;
    model::Tensors slices;
  };
  /// A shard that this rank adds up.
  struct Owned {
    uint64_t round = 0;
    std::vector<Contribution> contributions;  ///< by replica
    size_t missing = 0;                       ///< replicas
  };
  /// A bucket of a replica that this rank has.
  struct Bucket {
    uint64_t round = 0;
    model::Tensors sums;  ///< where the results go; undefined where the replica has no gradient
    /// Results of shards in their own memory, because the replica has none: by weight.
    std::vector<std::vector<std::pair<int64_t, at::Tensor>>> pieces;
    size_t missing = 0;  ///< shards
  };

  size_t replicas() const { return setup_.rank_of_replica.size(); }
  int rank_of(const Shard& shard) const { return rank_of_owner_[shard.owner]; }
  bool owns(const Shard& shard) const { return rank_of(shard) == setup_.mesh.rank(); }
  size_t first_weight(size_t bucket) const {
    return bucket == 0 ? 0 : setup_.bucket_ends[bucket - 1];
  }
  /// Buckets that the next forward pass needs first go first, behind all messages.
  static int urgency(size_t bucket) { return -1 - static_cast<int>(bucket); }
  net::Tag tag(Phase phase, int replica, size_t shard, uint64_t round) const;
  Bucket& bucket_of(int replica, size_t bucket) REQUIRES(mutex_) {
    return buckets_[static_cast<size_t>(replica)][bucket];
  }

  // On owners.
  void post_parts(size_t shard, uint64_t round);
  void on_parts(int replica, size_t shard, const RawMessage& message);
  void contribute(int replica, size_t shard, Contribution contribution);
  void add_up(size_t shard);
  model::Tensors sum_of_shard(const Shard& shard, std::vector<Contribution> contributions) const;

  // On replicas.
  Contribution contribution_of(const Shard& shard, const Partials& partials) const;
  void send_parts(int replica, size_t shard, uint64_t round, Contribution contribution);
  void post_result(int replica, size_t shard, uint64_t round, const model::Tensors& sums);
  /// A result that has come: `parts` by range; those that are not in place yet are kept.
  void take_result(int replica, size_t shard, const model::Tensors& parts);
  void fail(std::exception_ptr failure);

  StageSumSetup setup_;
  std::vector<int> rank_of_owner_;
  std::vector<Shard> shards_;
  std::vector<std::vector<size_t>> shards_of_bucket_;

  Mutex mutex_;
  CondVar changed_;
  std::vector<Owned> owned_ GUARDED_BY(mutex_);                  ///< by shard
  std::vector<std::vector<Bucket>> buckets_ GUARDED_BY(mutex_);  ///< by replica
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace penstock::runtime
