// What the simulator says about the very stretches that a training run measured.
#pragma once

#include <optional>
#include <vector>

#include "penstock/plan/interval.h"
#include "penstock/plan/plan.h"
#include "penstock/schedule/timeline.h"
#include "penstock/train/trainer.h"
#include "penstock/util/process/memory_kinds.h"

namespace penstock::job {

struct Prediction {
  double throughput_samples_per_s = 0;
  double idle_share = 0;
  std::optional<plan::Interval> interval;  ///< of the throughput; nothing where it is not known
  schedule::Timeline timeline;             ///< of the longest segment, as TrainResult::timeline
  std::vector<MemoryBytes> memory;         ///< by worker, at its peak in the longest segment
};

/// Simulates every segment of `result` with the costs of the options' plan; nothing when no segment
/// was measured.
std::optional<Prediction> predict(const train::TrainOptions& options,
                                  const train::TrainResult& result);

}  // namespace penstock::job
