// What a step of a stage with several replicas makes of their sums: each steps all weights, each
// steps its share of them, or, under `asynchronous`, each steps its own optimiser and the sums are
// changes of weights. Internal to runtime.
#pragma once

#include "penstock/runtime/sums/bucket_path.h"

namespace penstock::runtime {

/// A step is made at once in STEP, or begun there and taken bucket by bucket. Not thread-safe.
class StepRule {
 public:
  StepRule(const StageContext& context, BucketPath& path)
      : context_(context), path_(path), weights_(context.replica.weights) {}
  virtual ~StepRule() = default;
  StepRule(const StepRule&) = delete;
  StepRule& operator=(const StepRule&) = delete;

  /// What the replica gives of a bucket, whose gradients these are.
  virtual Partials given(const schedule::SumEvent&, Partials partials) { return partials; }
  /// STEP. `ready`: the sums of all weights; null: they are still to be finished. Whether the
  /// buckets are left to take().
  virtual bool step(const model::StepContext& step, const Tensors* ready) = 0;
  /// The bucket's part of the step.
  virtual void take(size_t bucket) = 0;
  /// StageSums::catch_up().
  virtual void catch_up() {}

 protected:
  const StageContext& context_;
  BucketPath& path_;
  WeightStore& weights_;
};

class WholeSteps : public StepRule {
 public:
  using StepRule::StepRule;
  bool step(const model::StepContext& step, const Tensors* ready) override;
  void take(size_t bucket) override;
};

/// STEP takes all sums and steps the replica's share; the other shares come afterwards.
class SharedSteps : public StepRule {
 public:
  using StepRule::StepRule;
  bool step(const model::StepContext& step, const Tensors* ready) override;
  void take(size_t bucket) override { path_.finish_gather(bucket); }
};

/// By the fabric. What is taken are the changes of all replicas that this one lacks.
class UpdateSteps : public StepRule {
 public:
  using StepRule::StepRule;
  Partials given(const schedule::SumEvent& sum, Partials partials) override;
  bool step(const model::StepContext& step, const Tensors* ready) override;
  void take(size_t bucket) override;
  void catch_up() override;
};

}  // namespace penstock::runtime
