#include "penstock/runtime/sums/background_sums.h"

#include <algorithm>
#include <utility>

namespace penstock::runtime {

using schedule::Action;

BackgroundSums::BackgroundSums(const StageContext& context, const Grouping& grouping,
                               std::unique_ptr<BucketPath> path, std::unique_ptr<StepRule> rule)
    : ReplicaSums(context, grouping, std::move(path), std::move(rule)),
      is_late_(!context.shape().global_norm &&
               !plan::backward_reads_newest(context.shape().policy) &&
               context.replica.ties->inside.empty()) {
  for (size_t bucket = 0; bucket < this->path().num_buckets(); ++bucket)
    bucket_of_.resize(this->path().ends()[bucket], bucket);
}

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
    for (const size_t place : places) {
      const size_t bucket = bucket_of_[place];
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
