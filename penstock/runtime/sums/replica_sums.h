// The gradients of one of several replicas of a stage. Its weights are in buckets, each of which
// has a sum of its own. Internal to runtime.
#pragma once

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
  /// Adds the micro-batch's gradients of a bucket, out of the stage's flat list.
  void add_bucket(MicroBatchId micro_batch, size_t bucket, Tensors& gradients);
  void start(MiniBatchId mini_batch, size_t bucket);
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
  std::vector<bool> started_;              ///< by bucket: since the last SYNC
  size_t next_bucket_;                     ///< of the step that is due; behind the last: none is
};

}  // namespace penstock::runtime
