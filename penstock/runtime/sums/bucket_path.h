// How the buckets of one replica go to the other replicas of its stage, and come back as sums: by
// the fabric, through the host's memory, or from GPU to GPU (device/device_sum.h). Where replicas
// share out the optimiser's state, stepped weights go the same way. Internal to runtime.
//
//   std::unique_ptr<BucketPath> path = make_bucket_path(context, grouping);
//   path->start({.bucket = 0}, std::move(partials));
//   Tensors sums = path->finish(0);
#pragma once

#include <memory>
#include <vector>

#include "penstock/runtime/device/device_sum.h"
#include "penstock/runtime/fabric/partials.h"
#include "penstock/runtime/fabric/weight_shares.h"
#include "penstock/runtime/gradient_buffer.h"
#include "penstock/runtime/stage_context.h"
#include "penstock/schedule/timeline.h"

namespace penstock::runtime {

/// Not thread-safe: its worker owns it. All replicas of the stage make the same calls.
class BucketPath {
 public:
  /// `ends`: the weight behind the last one of each bucket.
  BucketPath(const StageContext& context, std::vector<size_t> ends)
      : context_(context), ends_(std::move(ends)) {}
  virtual ~BucketPath() = default;
  BucketPath(const BucketPath&) = delete;
  BucketPath& operator=(const BucketPath&) = delete;

  const std::vector<size_t>& ends() const { return ends_; }
  size_t num_buckets() const { return ends_.size(); }
  size_t first_weight(size_t bucket) const { return bucket == 0 ? 0 : ends_[bucket - 1]; }
  size_t num_weights(size_t bucket) const { return ends_[bucket] - first_weight(bucket); }
  /// Fabric::adds_in_background().
  virtual bool adds_in_background() const { return false; }

  /// Gives the replica's part of a bucket's sum, which is used up. `given`: which one, and since
  /// when.
  virtual void start(const schedule::SumEvent& given, Partials partials) = 0;
  /// The sum of a bucket that has been started, on the replica's device. Blocks until all replicas
  /// have started it.
  virtual Tensors finish(size_t bucket) = 0;

  /// Gives the replica's share of the bucket's stepped weights.
  virtual void start_gather(size_t bucket) = 0;
  /// Fills in the shares of the others. May block until they have given them.
  virtual void finish_gather(size_t bucket) = 0;

  /// StageSums::events().
  virtual std::vector<schedule::SumEvent> events() const { return {}; }

 protected:
  /// Fabric::finish_sum().
  BucketSum wait_for(size_t bucket);

  const StageContext& context_;

 private:
  std::vector<size_t> ends_;
};

/// Through the memory of the host.
class FabricPath : public BucketPath {
 public:
  explicit FabricPath(const StageContext& context);

  bool adds_in_background() const override { return in_background_; }
  void start(const schedule::SumEvent& given, Partials partials) override;
  Tensors finish(size_t bucket) override;
  void start_gather(size_t bucket) override;
  void finish_gather(size_t bucket) override;
  std::vector<schedule::SumEvent> events() const override { return events_; }

 private:
  Partials on_host(Partials partials);
  /// The bucket's weights in the host's memory, with the replica's share, for the others' shares.
  Tensors shares_on_host(size_t bucket, const Tensors& places);

  bool in_background_;
  std::vector<schedule::SumEvent> given_;  ///< by bucket
  std::vector<Tensors> gathered_;          ///< by bucket, on the host, of a GPU
  std::vector<schedule::SumEvent> events_;
};

/// All gradients at once, from GPU to GPU.
class DevicePath : public BucketPath {
 public:
  DevicePath(const StageContext& context, ReplicaExchange& exchange, const Grouping& grouping);

  void start(const schedule::SumEvent& given, Partials partials) override;
  Tensors finish(size_t bucket) override;
  void start_gather(size_t) override {}
  void finish_gather(size_t bucket) override;

 private:
  DeviceSum sum_;
  std::vector<WeightShare> shares_;  ///< where the state is shared out
};

std::unique_ptr<BucketPath> make_bucket_path(const StageContext& context, const Grouping& grouping);

}  // namespace penstock::runtime
