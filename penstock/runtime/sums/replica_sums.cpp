#include "penstock/runtime/sums/replica_sums.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "penstock/runtime/device/host_stash.h"
#include "penstock/util/check.h"
#include "penstock/util/process/steady_ns.h"

namespace penstock::runtime {

using schedule::Action;

ReplicaSums::ReplicaSums(const StageContext& context, const Grouping& grouping,
                         std::unique_ptr<BucketPath> path, std::unique_ptr<StepRule> rule)
    : StageSums(context),
      path_(std::move(path)),
      rule_(std::move(rule)),
      started_(path_->num_buckets(), false),
      next_bucket_(path_->num_buckets()) {
  for (size_t bucket = 0; bucket < path_->num_buckets(); ++bucket)
    gradients_.emplace_back(path_->num_weights(bucket), grouping);
  for (size_t bucket = 0; bucket < path_->num_buckets(); ++bucket)
    bucket_of_.resize(path_->ends()[bucket], bucket);
}

void ReplicaSums::add_made(MicroBatchId micro_batch, const std::vector<size_t>& weights,
                           Tensors& gradients) {
  for (auto at = weights.begin(); at != weights.end();) {
    const size_t bucket = bucket_of_[*at];
    std::vector<size_t> places;
    for (; at != weights.end() && bucket_of_[*at] == bucket; ++at)
      places.push_back(*at - path_->first_weight(bucket));
    gradients_[bucket].add_made(micro_batch, places, gradients, path_->first_weight(bucket));
  }
}

void ReplicaSums::add(const Action& action, const Backward& backward) {
  Tensors gradients = backward([&](const std::vector<size_t>& weights, Tensors& made) {
    add_made(action.micro_batch, weights, made);
  });
  for (size_t bucket = 0; bucket < path_->num_buckets(); ++bucket)
    add_bucket(action.micro_batch, bucket, gradients);
}

void ReplicaSums::add_bucket(MicroBatchId micro_batch, size_t bucket, Tensors& gradients) {
  const auto first = gradients.begin() + static_cast<std::ptrdiff_t>(path_->first_weight(bucket));
  const auto end = gradients.begin() + static_cast<std::ptrdiff_t>(path_->ends()[bucket]);
  gradients_[bucket].add(micro_batch,
                         Tensors(std::make_move_iterator(first), std::make_move_iterator(end)));
}

void ReplicaSums::start(MiniBatchId mini_batch, size_t bucket) {
  started_[bucket] = true;
  const schedule::SumEvent given{.stage = context_.stage(),
                                 .mini_batch = mini_batch,
                                 .bucket = static_cast<int32_t>(bucket),
                                 .start_ns = steady_ns()};
  path_->start(given, rule_->given(given, gradients_[bucket].take_exclusive(mini_batch)));
}

void ReplicaSums::start_all(MiniBatchId mini_batch) {
  complete();
  // A replica without a micro-batch of the mini-batch gives nothing, but gets the sums.
  for (size_t bucket = 0; bucket < path_->num_buckets(); ++bucket) {
    if (!started_[bucket]) start(mini_batch, bucket);
  }
  started_.assign(path_->num_buckets(), false);
}

void ReplicaSums::finish_all() {
  ready_.emplace();
  for (size_t bucket = 0; bucket < path_->num_buckets(); ++bucket) {
    Tensors sums = path_->finish(bucket);
    std::move(sums.begin(), sums.end(), std::back_inserter(*ready_));
  }
  add_inner_ties();
}

void ReplicaSums::sync(const Action& action) {
  start_all(action.mini_batch);
  finish_all();
}

Tensors& ReplicaSums::ready(MiniBatchId mini_batch) {
  PENSTOCK_CHECK(ready_.has_value(), "mini-batch", mini_batch, "has not been summed");
  return *ready_;
}

void ReplicaSums::step(const Action& action) {
  const model::StepContext step = context_.step_context(action.version.value);
  const bool is_left = rule_->step(step, ready_ ? &*ready_ : nullptr);
  if (is_left) next_bucket_ = 0;
  if (ready_) complete();
  ready_.reset();
}

BeforeLayer ReplicaSums::before_layer(const Action& action) {
  if (next_bucket_ == path_->num_buckets() || action.version != context_.replica.weights.latest())
    return {};
  return [this](size_t layer) {
    const StashPause pause;  // what a step makes is no activation
    take_below(context_.module().weight_offsets()[layer + 1]);
  };
}

void ReplicaSums::take_below(size_t end) {
  while (next_bucket_ < path_->num_buckets() && path_->first_weight(next_bucket_) < end) {
    rule_->take(next_bucket_);
    ++next_bucket_;
  }
}

BackgroundSums::BackgroundSums(const StageContext& context, const Grouping& grouping,
                               std::unique_ptr<BucketPath> path, std::unique_ptr<StepRule> rule)
    : ReplicaSums(context, grouping, std::move(path), std::move(rule)),
      is_late_(!context.shape().global_norm &&
               !plan::backward_reads_newest(context.shape().policy) &&
               context.replica.ties->inside.empty()) {}

SegmentEnds BackgroundSums::segment_ends() const {
  return cut_between_buckets(context_.module(), path().ends());
}

int64_t BackgroundSums::num_passes(MiniBatchId mini_batch) const {
  const schedule::ScheduleShape& shape = context_.shape();
  const int64_t replicas = context_.num_replicas();
  const int64_t begin = mini_batch.value * shape.accumulate;
  const int64_t end = std::min(begin + shape.accumulate, shape.micro_batches);
  const auto below = [&](int64_t b) {
    return (b + replicas - 1 - context_.replica.replica) / replicas;
  };
  return below(end) - below(begin);
}

void BackgroundSums::add(const Action& action, const Backward& backward) {
  if (++passes_[action.mini_batch] < num_passes(action.mini_batch))
    return ReplicaSums::add(action, backward);
  passes_.erase(action.mini_batch);
  add_and_start(action, backward);
}

void BackgroundSums::add_and_start(const Action& action, const Backward& backward) {
  complete();
  std::vector<size_t> missing;
  for (size_t bucket = 0; bucket < path().num_buckets(); ++bucket)
    missing.push_back(path().num_weights(bucket));
  const auto leave = [&](size_t bucket, Tensors& gradients) {
    add_bucket(action.micro_batch, bucket, gradients);
    start(action.mini_batch, bucket);
  };
  Tensors rest = backward([&](const std::vector<size_t>& places, Tensors& gradients) {
    add_made(action.micro_batch, places, gradients);
    for (const size_t place : places) {
      const size_t bucket = bucket_of(place);
      if (--missing[bucket] == 0) leave(bucket, gradients);
    }
  });
  for (size_t bucket = 0; bucket < path().num_buckets(); ++bucket) {
    if (!is_started(bucket)) leave(bucket, rest);
  }
}

void BackgroundSums::sync(const Action& action) {
  start_all(action.mini_batch);
  if (!is_late_) finish_all();
}

}  // namespace penstock::runtime
