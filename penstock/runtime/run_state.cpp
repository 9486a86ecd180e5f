#include "penstock/runtime/run_state.h"

#include <fmt/format.h>

#include <algorithm>

namespace penstock::runtime {

bool StopGate::enter(MiniBatchId mini_batch) {
  MutexLock lock(mutex_);
  if (limit_ == INT64_MAX && stop_ != nullptr && stop_->load(std::memory_order_relaxed))
    limit_ = started_;
  if (mini_batch.value > limit_) return false;
  started_ = std::max(started_, mini_batch.value);
  return true;
}

int64_t StopGate::last_started() const {
  MutexLock lock(mutex_);
  return started_;
}

LossCollector::LossCollector(const schedule::ScheduleShape& shape, const BatchSource& source,
                             const RunOptions& options)
    : source_(source), options_(options), stats_(static_cast<size_t>(shape.num_mini_batches())) {}

void LossCollector::add_up(MiniBatchId mini_batch, const Open& open) {
  MiniBatchStats& stats = stats_.at(mini_batch.index());
  for (const auto& [micro_batch, part] : open.parts) {
    stats.loss_sum += part.loss_sum;
    stats.correct += part.correct;
    stats.samples += part.samples;
  }
}

void LossCollector::add(MiniBatchId mini_batch, MicroBatchId micro_batch,
                        const MiniBatchStats& part) {
  MutexLock lock(mutex_);
  Open& open = open_[mini_batch];
  open.parts.emplace(micro_batch, part);
  open.samples += part.samples;
  if (open.samples != source_.mini_batch_samples(mini_batch)) return;
  add_up(mini_batch, open);
  open_.erase(mini_batch);
  if (options_.on_mini_batch) options_.on_mini_batch(mini_batch, stats_[mini_batch.index()]);
}

void LossCollector::set_norm(MiniBatchId mini_batch, double norm) {
  MutexLock lock(mutex_);
  stats_.at(mini_batch.index()).gradient_norm = norm;
}

std::vector<MiniBatchStats> LossCollector::take(int64_t count) {
  MutexLock lock(mutex_);
  for (const auto& [mini_batch, open] : open_) add_up(mini_batch, open);
  open_.clear();
  stats_.resize(
      static_cast<size_t>(std::clamp<int64_t>(count, 0, static_cast<int64_t>(stats_.size()))));
  return std::move(stats_);
}

namespace {

/// "stage 1", "stages 0, 3": what each worker holds.
std::vector<std::string> worker_labels(const schedule::WorkerTable& table) {
  std::vector<std::string> labels;
  for (int32_t w = 0; w < table.num_workers(); ++w) {
    std::string label;
    for (const auto& held : table.held_by(WorkerId{w}))
      label += fmt::format("{}{}", label.empty() ? "" : ", ", held.stage.value);
    labels.push_back((table.held_by(WorkerId{w}).size() > 1 ? "stages " : "stage ") + label);
  }
  return labels;
}

}  // namespace

RunState::RunState(const schedule::Schedule& s, const BatchSource& batches,
                   const RunOptions& run_options, const std::vector<size_t>& weights_of_stage)
    : schedule(s),
      table(s.shape),
      source(batches),
      options(run_options),
      exchange(s, run_options.credits),
      board(worker_labels(table)),
      gate(run_options.stop),
      losses(s.shape, batches, run_options) {
  splits_backward.resize(weights_of_stage.size(), false);
  for (const auto& actions : s.workers) {
    for (const schedule::Action& action : actions) {
      if (action.op == schedule::Op::BackwardInput) splits_backward[action.stage.index()] = true;
    }
  }
  for (size_t i = 0; i < weights_of_stage.size(); ++i) {
    const int replicas = s.shape.replicas[i];
    reduces.push_back(replicas > 1 ? std::make_unique<SharedReduce>(replicas, weights_of_stage[i])
                                   : nullptr);
  }
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
  if (global) global->close();
}

void RunState::rethrow_failure() {
  MutexLock lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

}  // namespace penstock::runtime
