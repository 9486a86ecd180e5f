// What the replicas of a stage, and all workers, add up in a run: a part of its fabric (fabric.h).
//
//   sums.start_sum(stage, replica, bucket, std::move(partials));     // before SYNC
//   sums.finish_sum(stage, replica, bucket, sum, wait);              // SYNC, or later
//   sums.combine(share, totals, wait);                               // NORM
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "penstock/model/layer.h"
#include "penstock/runtime/fabric/norm_exchange.h"
#include "penstock/runtime/fabric/partials.h"
#include "penstock/runtime/fabric/wait.h"
#include "penstock/util/ids.h"

namespace penstock::runtime {

/// The sum of a bucket over the replicas of its stage.
struct BucketSum {
  model::Tensors sums;  ///< must not be written to unless they are exclusive
  /// When its last part was on this rank (steady_clock, ns), where sums travel while the workers
  /// compute; otherwise 0.
  int64_t complete_ns = 0;
};

/// Thread-safe as the fabric.
class Sums {
 public:
  virtual ~Sums() = default;
  Sums() = default;
  Sums(const Sums&) = delete;
  Sums& operator=(const Sums&) = delete;

  // The sums over the replicas of a stage, bucket by bucket: the gradients of some consecutive
  // weights. Under the method `ordered` (and every other one but `ring`) over the gradient groups
  // of all replicas, ascending, so that results depend neither on timing nor on the transport nor
  // on the number of replicas; undefined tensors count as zero and stay undefined if undefined
  // everywhere. With 16 bits every group's gradients are rounded, and the sum once more
  // (plan/sync_precision.h), also where replicas share memory.
  //
  // Under `asynchronous` what is summed are updates of weights (delayed_sum.h): one group per
  // replica and round; a sum has what the replica lacks, without the parts of replicas that are up
  // to `staleness` rounds behind. The group kLastUpdate, without tensors, ends the run's rounds.

  /// The weight behind the last one of each bucket; the same on every rank.
  virtual const std::vector<size_t>& bucket_ends(StageId stage) const = 0;
  /// Whether the sums are added without the workers' help. Then finish_sum() may be left until the
  /// sums are needed, and buckets may be started while the backward pass goes on; otherwise all
  /// replicas must start and finish all buckets in their order, in SYNC.
  virtual bool adds_in_background(StageId stage) const = 0;
  /// Gives the replica's part of the next sum of a bucket: the partials of its weights, which must
  /// be exclusive to the caller (GradientBuffer::take_exclusive) and are used up. Never blocks.
  virtual void start_sum(StageId stage, int replica, size_t bucket, Partials partials) = 0;
  /// The sum of a bucket that has been started. Blocks until all replicas have started it. To be
  /// called before it is started again.
  virtual WaitResult finish_sum(StageId stage, int replica, size_t bucket, BucketSum& sum,
                                Wait& wait) = 0;

  // Where replicas share out the optimiser's state: the stepped weights, bucket by bucket. Each
  // replica gathers every bucket once after each of its sums, in their order, and before it starts
  // the bucket's next sum.

  /// Gives the replica's share (weight_shares.h) of the bucket's weights, which these tensors hold:
  /// contiguous float32, whose other parts are to be filled in. Never blocks.
  virtual void start_gather(StageId stage, int replica, size_t bucket, model::Tensors weights) = 0;
  /// Blocks until the tensors given to start_gather() have the shares of all replicas.
  virtual WaitResult finish_gather(StageId stage, int replica, size_t bucket, Wait& wait) = 0;

  /// Adds up tied gradients and the norm over all workers (norm_exchange.h). Blocks until every
  /// worker of the job has called it. Between calls nothing of the share is kept.
  virtual WaitResult combine(NormShare share, NormTotals& totals, Wait& wait) = 0;
};

}  // namespace penstock::runtime
