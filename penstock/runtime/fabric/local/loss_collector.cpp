#include "penstock/runtime/fabric/local/loss_collector.h"

#include <algorithm>

namespace penstock::runtime {

LossCollector::LossCollector(int64_t mini_batches, std::function<int64_t(MiniBatchId)> samples_of,
                             Done done)
    : samples_of_(std::move(samples_of)),
      done_(std::move(done)),
      stats_(static_cast<size_t>(mini_batches)) {}

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
  if (open.samples != samples_of_(mini_batch)) return;
  add_up(mini_batch, open);
  open_.erase(mini_batch);
  if (done_) done_(mini_batch, stats_[mini_batch.index()]);
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
  return stats_;
}

}  // namespace penstock::runtime
