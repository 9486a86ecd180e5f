// The sums of a stage's buckets as they come back, shard by shard, to the replicas of this rank.
// Internal to fabric/mesh.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "penstock/model/layer.h"
#include "penstock/net/mesh.h"
#include "penstock/runtime/fabric/fabric.h"
#include "penstock/runtime/fabric/gradient_shards.h"
#include "penstock/runtime/fabric/wait.h"
#include "penstock/util/numbers/short_floats.h"
#include "penstock/util/process/mutex.h"

namespace penstock::runtime {

/// The numbers of a range, by reference.
at::Tensor slice_of(const at::Tensor& gradient, const ShardRange& range);
/// Where a message with these ranges is to go: into `places`, or memory of its own where there is
/// none. It puts the tensors, of the type that travels, into `parts`, undefined where one was left
/// out.
net::Place place_of_sums(std::vector<ShardRange> ranges, model::Tensors places,
                         std::shared_ptr<model::Tensors> parts, FloatType precision);

/// Thread-safe.
class BucketResults {
 public:
  /// Weights of these shapes; `bucket_ends`: make_buckets(); `shards`: of make_shards(), which must
  /// outlive it. `own_shards_only`: replica r gets the shards of owner r and no others.
  BucketResults(std::vector<model::Shape> shapes, std::vector<size_t> bucket_ends, size_t replicas,
                const std::vector<Shard>& shards, FloatType precision,
                bool own_shards_only = false);

  size_t first_weight(size_t bucket) const { return bucket == 0 ? 0 : ends_[bucket - 1]; }
  const std::vector<size_t>& shards_of(size_t bucket) const { return shards_of_bucket_[bucket]; }
  /// The ranges of a shard in a list of its bucket's gradients; undefined where they are.
  model::Tensors slices(size_t shard, const model::Tensors& gradients) const;

  /// Begins the next round of a bucket, whose number it returns; nothing once closed. The results
  /// are to be put into `sums`, or where that is undefined, into memory of their own.
  std::optional<uint64_t> begin(int replica, size_t bucket, model::Tensors sums);
  /// Where the results of the round that has begun are to be put, instead of memory of their own.
  void aim(int replica, size_t bucket, model::Tensors sums);
  /// place_of_sums() for a result of the round that comes from another rank.
  net::Place place(int replica, size_t shard, std::shared_ptr<model::Tensors> parts);
  /// A result that has come: by range, in float32 or the type that travels; in its place, or to be
  /// copied there.
  void put(int replica, size_t shard, const model::Tensors& parts);
  /// Fabric::finish_sum(). `engine`: brings results, and is helped while this waits awake; null:
  /// none does.
  WaitResult finish(int replica, size_t bucket, BucketSum& sum, Wait& wait,
                    net::ProgressEngine* engine = nullptr);
  void close();

 private:
  struct Bucket {
    uint64_t round = 0;
    model::Tensors sums;
    /// Results that have memory of their own: by weight, with the number of their first one.
    std::vector<std::vector<std::pair<int64_t, at::Tensor>>> pieces;
    size_t missing = 0;  ///< shards
    int64_t complete_ns = 0;
  };
  bool is_over(int replica, size_t bucket) {
    MutexLock lock(mutex_);
    return closed_ || bucket_of(replica, bucket).missing == 0;
  }
  Bucket& bucket_of(int replica, size_t bucket) REQUIRES(mutex_) {
    return buckets_[static_cast<size_t>(replica)][bucket];
  }
  model::Tensors sums_of(int replica, size_t bucket) {
    MutexLock lock(mutex_);
    return bucket_of(replica, bucket).sums;
  }

  std::vector<model::Shape> shapes_;
  std::vector<size_t> ends_;
  const std::vector<Shard>& shards_;
  FloatType precision_;
  bool own_shards_only_;
  std::vector<std::vector<size_t>> shards_of_bucket_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::vector<Bucket>> buckets_ GUARDED_BY(mutex_);  ///< by replica
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace penstock::runtime
