// The gradients of one of several replicas of a stage. Its weights are in buckets, each of which
// has a sum of its own. Internal to runtime.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "penstock/runtime/sums/bucket_path.h"
#include "penstock/runtime/sums/stage_sums.h"
#include "penstock/runtime/sums/step_rule.h"

namespace penstock::runtime {

/// SYNC gives all buckets and takes their sums.
class ReplicaSums : public StageSums {
 public:
  /// `rule` may refer to `path`.
  ReplicaSums(const StageContext& context, const Grouping& grouping,
              std::unique_ptr<BucketPath> path, std::unique_ptr<StepRule> rule);

  void add(const schedule::Action& action, const Backward& backward) override;
  void sync(const schedule::Action& action) override;
  Tensors& ready(MiniBatchId mini_batch) override;
  void step(const schedule::Action& action) override;
  BeforeLayer before_layer(const schedule::Action& action) override;
  void complete() override { take_below(path_->ends().back() + 1); }
  void catch_up() override { rule_->catch_up(); }
  std::vector<schedule::SumEvent> events() const override { return path_->events(); }

 protected:
  const BucketPath& path() const { return *path_; }
  /// Adds those of the micro-batch's gradients that are made already, out of the stage's flat list.
  void add_made(MicroBatchId micro_batch, const std::vector<size_t>& weights, Tensors& gradients);
  /// The rest of a bucket's.
  void add_bucket(MicroBatchId micro_batch, size_t bucket, Tensors& gradients);
  void start(MiniBatchId mini_batch, size_t bucket);
  size_t bucket_of(size_t weight) const { return bucket_of_[weight]; }
  bool is_started(size_t bucket) const { return started_[bucket]; }
  /// Starts those that have not been started since the last SYNC.
  void start_all(MiniBatchId mini_batch);
  void finish_all();

 private:
  /// Takes what is due of the last step for the weights below `end`.
  void take_below(size_t end);

  std::unique_ptr<BucketPath> path_;
  std::unique_ptr<StepRule> rule_;
  std::vector<GradientBuffer> gradients_;  ///< by bucket
  std::vector<size_t> bucket_of_;          ///< by weight
  std::vector<bool> started_;              ///< by bucket: since the last SYNC
  size_t next_bucket_;                     ///< of the step that is due; behind the last: none is
};

/// Where the fabric adds while the workers compute: buckets leave one by one during the last
/// backward pass of a mini-batch. SYNC and STEP only note that sums are due: the next forward pass
/// takes each bucket's sum and steps its weights when it comes to its first layer. With a norm, and
/// with weights that the stage uses twice, SYNC takes all sums: those need all gradients at once.
class BackgroundSums : public ReplicaSums {
 public:
  BackgroundSums(const StageContext& context, const Grouping& grouping,
                 std::unique_ptr<BucketPath> path, std::unique_ptr<StepRule> rule);

  void add(const schedule::Action& action, const Backward& backward) override;
  void sync(const schedule::Action& action) override;
  SegmentEnds segment_ends() const override;

 private:
  /// How many backward passes of the mini-batch the replica makes.
  int64_t num_passes(MiniBatchId mini_batch) const;
  /// The last one.
  void add_and_start(const schedule::Action& action, const Backward& backward);

  bool is_late_;                           ///< sums are taken after STEP
  std::map<MiniBatchId, int64_t> passes_;  ///< that the replica has made
};

}  // namespace penstock::runtime
