#include "penstock/runtime/fabric/local/loss_collector.h"

#include <algorithm>

namespace penstock::runtime {

LossCollector::LossCollector(int64_t mini_batches, std::function<int64_t(MiniBatchId)> samples_of,
                             Done done)
    : samples_of_(std::move(samples_of)),
      done_(std::move(done)),
      stats_(static_cast<size_t>(mini_batches)) {}

MiniBatchStats LossCollector::sum_of(const Open& open) {
  MiniBatchStats sum;
  for (const auto& [micro_batch, part] : open.parts) {
    sum.loss_sum += part.loss_sum;
    sum.correct += part.correct;
    sum.samples += part.samples;
  }
  return sum;
}

void LossCollector::keep(MiniBatchId mini_batch, const MiniBatchStats& sum) {
  if (mini_batch.index() >= stats_.size()) return;
  MiniBatchStats& stats = stats_[mini_batch.index()];
  const double norm = stats.gradient_norm;
  stats = sum;
  stats.gradient_norm = norm;
}

void LossCollector::add(MiniBatchId mini_batch, MicroBatchId micro_batch,
                        const MiniBatchStats& part) {
  MutexLock lock(mutex_);
  Open& open = open_[mini_batch];
  open.parts.emplace(micro_batch, part);
  open.samples += part.samples;
  if (open.samples != samples_of_(mini_batch)) return;
  const MiniBatchStats sum = sum_of(open);
  keep(mini_batch, sum);
  open_.erase(mini_batch);
  if (done_) done_(mini_batch, sum);
}

void LossCollector::set_norm(MiniBatchId mini_batch, double norm) {
  MutexLock lock(mutex_);
  stats_.at(mini_batch.index()).gradient_norm = norm;
}

std::vector<MiniBatchStats> LossCollector::take(int64_t count) {
  MutexLock lock(mutex_);
  for (const auto& [mini_batch, open] : open_) keep(mini_batch, sum_of(open));
  open_.clear();
  stats_.resize(
      static_cast<size_t>(std::clamp<int64_t>(count, 0, static_cast<int64_t>(stats_.size()))));
  return stats_;
}

}  // namespace penstock::runtime
