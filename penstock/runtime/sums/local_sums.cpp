#include "penstock/runtime/sums/local_sums.h"

#include <utility>

#include "penstock/plan/weight_policy.h"
#include "penstock/runtime/device/host_stash.h"
#include "penstock/runtime/round_state.h"
#include "penstock/util/process/steady_ns.h"

namespace penstock::runtime {

using schedule::Action;

LocalSums::LocalSums(const StageContext& context, Grouping grouping,
                     std::unique_ptr<BucketPath> path)
    : SoleSums(context, std::move(grouping)),
      path_(std::move(path)),
      is_late_(path_->adds_in_background() && !plan::backward_reads_newest(context.shape().policy)),
      next_bucket_(path_->num_buckets()) {}

bool LocalSums::ends_round(const Action& step) const {
  const int64_t made = context_.run.steps_before + step.version.value + 1;
  return made % context_.run.pipeline.sync_every == 0;
}

void LocalSums::add(const Action& action, const Backward& backward) {
  if (steps_ahead()) complete();
  SoleSums::add(action, backward);
}

void LocalSums::step(const Action& action) {
  complete();
  SoleSums::step(action);
  if (!ends_round(action)) return;
  give_changes(action);
  if (!is_late_) complete();
}

void LocalSums::give_changes(const Action& step) {
  const Replica& replica = context_.replica;
  for (size_t bucket = 0; bucket < path_->num_buckets(); ++bucket) {
    const schedule::SumEvent given{.stage = context_.stage(),
                                   .mini_batch = step.mini_batch,
                                   .bucket = static_cast<int32_t>(bucket),
                                   .start_ns = steady_ns()};
    path_->start(given,
                 {{.group = replica.replica,
                   .sums = replica.round->changes(replica.weights, path_->first_weight(bucket),
                                                  path_->num_weights(bucket))}});
  }
  next_bucket_ = 0;
}

BeforeLayer LocalSums::before_layer(const Action& action) {
  if (next_bucket_ == path_->num_buckets() || action.version != context_.replica.weights.latest())
    return {};
  return [this](size_t layer) {
    const StashPause pause;  // what a step makes is no activation
    take_below(context_.module().weight_offsets()[layer + 1]);
  };
}

void LocalSums::take_below(size_t end) {
  Replica& replica = context_.replica;
  while (next_bucket_ < path_->num_buckets() && path_->first_weight(next_bucket_) < end) {
    replica.round->finish(replica.weights, path_->first_weight(next_bucket_),
                          path_->finish(next_bucket_), context_.num_replicas(),
                          {.learning_rate = context_.run.pipeline.outer.learning_rate});
    ++next_bucket_;
  }
}

}  // namespace penstock::runtime
