// How far a segment of a training run is, for its observer. Internal to train.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>

#include "penstock/runtime/run_options.h"
#include "penstock/train/train_observer.h"
#include "penstock/train/train_options.h"

namespace penstock::train {

/// NaN where the loss knows nothing that is right.
inline double accuracy_of(int64_t correct, int64_t targets, bool counts_correct) {
  if (!counts_correct) return std::nan("");
  return targets > 0 ? static_cast<double>(correct) / static_cast<double>(targets) : 0;
}

/// What an observer is told of a segment while it runs.
class SegmentProgress {
 public:
  /// `so_far`: of the epoch before the segment; the samples count from 0.
  SegmentProgress(const TrainOptions& options, Progress so_far, int64_t correct, int64_t targets)
      : options_(options), progress_(so_far), correct_(correct), targets_(targets) {}

  /// Hands on what workers do, to an observer that wants it.
  void watch(runtime::RunOptions& run) const {
    if (options_.observer == nullptr || !options_.observer->watches_actions()) return;
    run.on_action = [observer = options_.observer](WorkerId worker, const auto& event) {
      observer->on_action(worker, event);
    };
  }

  void add(const runtime::MiniBatchStats& stats, int64_t targets, bool counts_correct) {
    progress_.samples += stats.samples;
    ++progress_.mini_batch;
    ++progress_.step;
    correct_ += stats.correct;
    targets_ += targets;
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    progress_.samples_per_s = static_cast<double>(progress_.samples) / std::max(seconds, 1e-9);
    if (options_.observer == nullptr) return;
    progress_.loss = stats.mean_loss();
    progress_.accuracy = accuracy_of(correct_, targets_, counts_correct);
    options_.observer->on_mini_batch(progress_);
  }

  /// Since the segment began.
  double samples_per_s() const { return progress_.samples_per_s; }

 private:
  const TrainOptions& options_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  Progress progress_;
  int64_t correct_;
  int64_t targets_;
};

}  // namespace penstock::train
