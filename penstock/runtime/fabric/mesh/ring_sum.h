// Sums over ranks around a ring: each shard begins at the replica behind its owner; every replica
// adds its own gradients and passes the sum on, until it is complete at the owner; then the result
// goes around once more. Which replica's gradients are added first differs from shard to shard: the
// sums are those of one thread up to rounding only.
//
// Steps: 2 (n - 1). Bytes that each of n replicas sends, with M bytes of gradients: 2 (n-1)/n M,
// all to one peer (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", 2009). Servers
// take no part.
#pragma once

#include <memory>
#include <vector>

#include "penstock/runtime/fabric/mesh/bucket_results.h"
#include "penstock/runtime/fabric/mesh/stage_sum.h"
#include "penstock/util/mutex.h"

namespace penstock::runtime {

class RingSum : public StageSum, public std::enable_shared_from_this<RingSum> {
 public:
  explicit RingSum(StageSumSetup setup);

  void begin() override;
  void start(int replica, size_t bucket, Partials partials) override;
  WaitResult finish(int replica, size_t bucket, model::Tensors& sums, Wait& wait) override {
    return results_.finish(replica, bucket, sums, wait);
  }
  void close() override { results_.close(); }

 private:
  enum Phase : uint8_t { Adding, Results };
  /// A shard on a replica that this rank has.
  struct Link {
    uint64_t round = 0;
    bool has_own = false;
    model::Tensors own;  ///< by range
    bool has_sum = false;
    model::Tensors sum;  ///< from the replica before
  };

  int replicas() const { return static_cast<int>(setup_.rank_of_replica.size()); }
  int next(int replica) const { return (replica + 1) % replicas(); }
  int rank_of(int replica) const { return setup_.rank_of_replica[static_cast<size_t>(replica)]; }
  int owner(size_t shard) const { return static_cast<int>(shards_[shard].owner); }
  bool is_first(int replica, size_t shard) const { return replica == next(owner(shard)); }
  net::Tag tag(Phase phase, int to, size_t shard, uint64_t round) const;
  Link& link(int replica, size_t shard) REQUIRES(mutex_) {
    return links_[static_cast<size_t>(replica)][shard];
  }
  void post_sum(int replica, size_t shard, uint64_t round);
  void post_result(int replica, size_t shard, uint64_t round);
  void take_own(int replica, size_t shard, model::Tensors own);
  void take_sum(int replica, size_t shard, model::Tensors sum);
  void add_if_complete(int replica, size_t shard) REQUIRES(mutex_);
  void add(int replica, size_t shard);
  void take_result(int replica, size_t shard, uint64_t round, const model::Tensors& parts);
  void send(Phase phase, int to, size_t shard, uint64_t round, const model::Tensors& parts);

  StageSumSetup setup_;
  std::vector<Shard> shards_;
  BucketResults results_;
  Mutex mutex_;
  std::vector<std::vector<Link>> links_ GUARDED_BY(mutex_);  ///< by replica and shard
};

}  // namespace penstock::runtime
