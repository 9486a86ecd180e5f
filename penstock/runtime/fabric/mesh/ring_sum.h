// Sums over ranks around a ring: each shard begins at the replica behind its owner; every replica
// adds its own gradients and passes the sum on, until it is complete at the owner; then the result
// goes around once more. Which replica's gradients are added first differs from shard to shard: the
// sums are those of one thread up to rounding only.
//
// With 16 bits a replica adds its own gradients in float32 and rounds the sum so far before it
// passes it on, also to a replica of the same rank; so the result has been rounded n times on its
// way.
//
// Steps: 2 (n - 1). Bytes that each of n replicas sends, with M bytes of gradients: 2 (n-1)/n M,
// all to one peer (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", 2009). Servers
// take no part.
#pragma once

#include <optional>
#include <vector>

#include "penstock/runtime/fabric/mesh/stage_sum.h"
#include "penstock/util/process/mutex.h"

namespace penstock::runtime {

class RingSum : public StageSum {
 public:
  explicit RingSum(StageSumSetup setup);

  void begin() override;
  void start(int replica, size_t bucket, Partials partials) override;

 private:
  /// A shard on a replica that this rank has: tensors by range.
  struct Link {
    uint64_t round = 0;
    std::optional<model::Tensors> own;
    std::optional<model::Tensors> sum;  ///< from the replica before
  };

  int next(int replica) const { return (replica + 1) % replicas(); }
  int before(int replica) const { return (replica + replicas() - 1) % replicas(); }
  int owner(size_t shard) const { return static_cast<int>(shards_[shard].owner); }
  bool is_first(int replica, size_t shard) const { return replica == next(owner(shard)); }
  Link& link(int replica, size_t shard) REQUIRES(mutex_) {
    return links_[static_cast<size_t>(replica)][shard];
  }
  void post_sum(int replica, size_t shard, uint64_t round);
  void post_result(int replica, size_t shard, uint64_t round);
  /// One of the two things that a link waits for.
  void take(int replica, size_t shard, std::optional<model::Tensors> Link::*which,
            model::Tensors parts);
  void add(int replica, size_t shard);
  /// The sum so far and the replica's own gradients, in the type that travels. Uses both up.
  model::Tensors sum_of(std::optional<model::Tensors> so_far, model::Tensors own) const;
  void take_result(int replica, size_t shard, uint64_t round, const model::Tensors& parts);
  void send(Phase phase, int to, size_t shard, uint64_t round, const model::Tensors& parts);

  Mutex mutex_;
  std::vector<std::vector<Link>> links_ GUARDED_BY(mutex_);  ///< by replica and shard
};

}  // namespace penstock::runtime
