#include "penstock/runtime/run_state.h"

#include <algorithm>

namespace penstock::runtime {

bool StopGate::enter(MiniBatchId mini_batch) {
  MutexLock lock(mutex_);
  if (limit_ == INT64_MAX && stop_ != nullptr && stop_->load(std::memory_order_relaxed)) limit_ = started_;
  if (mini_batch.value > limit_) return false;
  started_ = std::max(started_, mini_batch.value);
  return true;
}

int64_t StopGate::last_started() const {
  MutexLock lock(mutex_);
  return started_;
}

LossCollector::LossCollector(const schedule::ScheduleShape& shape, const BatchSource& source, const RunOptions& options)
    : source_(source), options_(options), stats_(static_cast<size_t>(shape.num_mini_batches())) {}

void LossCollector::add(MiniBatchId mini_batch, const MiniBatchStats& part) {
  MutexLock lock(mutex_);
  MiniBatchStats& stats = stats_.at(mini_batch.index());
  stats.loss_sum += part.loss_sum;
  stats.correct += part.correct;
  stats.samples += part.samples;
  if (stats.samples == source_.mini_batch_samples(mini_batch) && options_.on_mini_batch) options_.on_mini_batch(mini_batch, stats);
}

std::vector<MiniBatchStats> LossCollector::take(int64_t count) {
  MutexLock lock(mutex_);
  stats_.resize(static_cast<size_t>(std::clamp<int64_t>(count, 0, static_cast<int64_t>(stats_.size()))));
  return std::move(stats_);
}

RunState::RunState(const schedule::Schedule& s, const BatchSource& batches, const RunOptions& run_options,
                   std::vector<StageId> stage_of_worker)
    : schedule(s),
      source(batches),
      options(run_options),
      exchange(s, run_options.credits),
      board(std::move(stage_of_worker)),
      gate(run_options.stop),
      losses(s.shape, batches, run_options) {
  for (const int replicas : s.shape.replicas) reduces.push_back(replicas > 1 ? std::make_unique<SharedReduce>(replicas) : nullptr);
}

void RunState::fail(std::exception_ptr failure) {
  {
    MutexLock lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
  }
  failed_.store(true, std::memory_order_relaxed);
  exchange.close();
  for (const auto& reduce : reduces) {
    if (reduce) reduce->close();
  }
}

void RunState::rethrow_failure() {
  MutexLock lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

}  // namespace penstock::runtime
