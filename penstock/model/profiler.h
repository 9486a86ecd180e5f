// Measures a Profile: every layer on its own, forward, backward and optimiser step, on random inputs.
#pragma once

#include <cstdint>
#include <functional>

#include "penstock/model/model.h"
#include "penstock/model/optimizer.h"
#include "penstock/profile/profile.h"

namespace penstock::model {

struct ProfilerOptions {
  int64_t batch_size = 64;  ///< samples per micro-batch
  int warmup = 2;           ///< untimed passes
  int samples = 10;         ///< timed passes; medians are reported
  int threads = 1;          ///< intra-op threads per worker
  /// Copies of the measurement that run at the same time, one thread each, so that shared caches and memory bandwidth are charged as in a
  /// real run; the first copy's times are reported.
  int concurrency = 1;
  uint64_t seed = 1;
  OptimizerSpec optimizer = {};
  /// Called after each pass with (done, total); from the calling thread.
  std::function<void(int, int)> progress = {};
};

/// The model's profile on this machine. The last layer's times include the loss. A first layer whose inputs need no gradient is charged
/// without it. Blocks for (warmup + samples) passes of the whole model. Throws ConfigError for a batch size, sample or thread count below
/// 1, RuntimeError when a layer fails (names it).
profile::Profile measure_profile(const Model& model, const ProfilerOptions& options);

}  // namespace penstock::model
