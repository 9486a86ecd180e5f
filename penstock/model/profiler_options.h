// How a model is measured (profiler.h): a plain value without tensors.
//
//   ProfilerOptions options{.batch_size = 32, .concurrency = 2};
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "penstock/model/loss_spec.h"
#include "penstock/model/optimizer_spec.h"
#include "penstock/profile/lengths.h"
#include "penstock/profile/share.h"
#include "penstock/util/numbers/precision.h"

namespace penstock::model {

/// How often layers that do the same work are measured.
enum class Repeats : uint8_t {
  /// Once where measuring the whole model takes more than 256 MiB, otherwise All: what is small may
  /// lie in caches, and does so more when less is run.
  Auto,
  Once,  ///< one of them, and another one as a check
  All,   ///< each of them
};

struct ProfilerOptions {
  int64_t batch_size = 64;  ///< samples per micro-batch
  int warmup = 2;           ///< untimed passes
  /// Timed passes; their mean is reported. Half as many additional passes time the gradients of
  /// inputs and of weights separately.
  int samples = 10;
  /// For a fast model more samples are timed, until about this much time has passed (a machine's
  /// speed varies by tens of per cent within fractions of a second) or there are `most_samples`.
  /// The number is computed from the time of the last warm-up pass, or of the first sample; it is
  /// at least `samples`. 0: exactly `samples`.
  std::chrono::milliseconds least_time{0};
  int most_samples = 1000;
  /// Goes on until the standard error of a pass's mean (profile/pass_record.h) is at most this
  /// share of it, or the timed passes have taken `longest`, or there are `most_samples`; and warms
  /// up until times stop falling, for half of `longest` at most. 0: neither.
  double wanted_error = 0;
  std::chrono::milliseconds longest{10'000};
  /// For a slow model fewer passes are made than asked for, if their time, computed from the first
  /// one, would be longer; at least one of each kind. 0: all of them.
  std::chrono::milliseconds most_time{60'000};
  int threads = 1;  ///< intra-op threads per worker
  /// What is measured, as libtorch names it: "cuda:0"; empty: the CPU.
  std::string device = {};
  /// Copies of the measurement that run at the same time, one thread each, so that shared caches
  /// and memory bandwidth are used as in a real run; the first copy's times are reported.
  int concurrency = 1;
  uint64_t seed = 1;
  OptimizerSpec optimizer = {};
  LossSpec loss = {};
  Precision precision = Precision::Float32;
  /// On a GPU: the times of passes that are graphs (runtime::PipelineOptions::device_graphs), where
  /// all layers can be recorded.
  bool device_graphs = false;
  Repeats repeats = Repeats::Auto;
  /// Measures each of these lengths of sequences, and returns the profile over them
  /// (profile::over_lengths()); empty: the model's own sizes.
  std::vector<profile::LengthGroup> lengths = {};
  /// The layers that are measured; nothing: all. No others get weights, except small ones that make
  /// whole numbers or masks which these layers read.
  std::optional<profile::LayerRange> layers = {};
  /// Called with the reason when the model is measured without the graphs that were wanted; from a
  /// thread of the measurement.
  std::function<void(const std::string&)> on_no_graphs = {};
  /// Called after each pass with (done, total); from the calling thread. The total grows when
  /// `least_time` requires more samples, and falls with `most_time`.
  std::function<void(int, int)> progress = {};
  /// Ends the measurement before the next layer, once true; null: nothing does.
  const std::atomic<bool>* stop = nullptr;
};

}  // namespace penstock::model
