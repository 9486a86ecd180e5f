// What is measured of a stream while it runs: rates, latencies, deadlines, losses, and per stage
// the times of its passes and how busy it is. In a fixed amount of memory.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "penstock/schedule/timeline.h"
#include "penstock/stream/frame_loss.h"
#include "penstock/stream/histogram.h"
#include "penstock/util/process/mutex.h"

namespace penstock::stream {

/// Means over the passes of a stage since the last look.
struct StageTimes {
  int64_t frames = 0;     ///< backward passes
  double forward_ns = 0;  ///< per frame, here and below
  double backward_ns = 0;
  double step_ns = 0;
  double hand_over_ns = 0;  ///< of messages, without waiting
  double busy = 0;          ///< share of the time, 0..1

  double tick_ns() const { return forward_ns + backward_ns + step_ns + hand_over_ns; }
};

/// Of the whole stream, or of a part of it.
struct StreamNumbers {
  int64_t elapsed_ns = 0;
  int64_t processed = 0;  ///< frames that came out of the last stage
  double fps = 0;         ///< processed per second
  int64_t latency_p50_ns = 0;
  int64_t latency_p99_ns = 0;
  int64_t latency_max_ns = 0;
  int64_t deadline_misses = 0;
  Losses losses;
};

/// Thread-safe.
class StreamMeter {
 public:
  explicit StreamMeter(int64_t deadline_ns) : deadline_ns_(deadline_ns) {}

  /// The stages of a run of the pipeline begin.
  void begin(size_t stages);
  /// From the stage's worker.
  void on_action(WorkerId worker, const schedule::TimelineEvent& event);
  /// A frame has come out of the last stage.
  void on_output(int64_t latency_ns, const Losses& losses);

  /// Since the beginning of the stream.
  StreamNumbers whole() const;
  /// Since the call before, at which the next part began.
  StreamNumbers take_part();
  /// By stage, since the call before.
  std::vector<StageTimes> take_stages();
  /// The newest actions of each worker, oldest first; at most some hundred.
  std::vector<std::vector<schedule::TimelineEvent>> newest_actions() const;

 private:
  struct Tally {
    int64_t begin_ns = 0;
    int64_t processed = 0;
    Histogram latencies = {};
    int64_t latency_max_ns = 0;
    int64_t deadline_misses = 0;
    Losses losses = {};
  };
  struct Stage {
    mutable Mutex mutex;
    int64_t begin_ns GUARDED_BY(mutex) = 0;
    StageTimes sums GUARDED_BY(mutex);
    int64_t busy_ns GUARDED_BY(mutex) = 0;
    std::deque<schedule::TimelineEvent> newest GUARDED_BY(mutex);
  };
  static StreamNumbers numbers_of(const Tally& tally);
  static int64_t percentile(const Tally& tally, double share);
  static void add(Tally& tally, int64_t latency_ns, const Losses& losses, bool misses);

  const int64_t deadline_ns_;  ///< 0: none
  mutable Mutex mutex_;
  Tally whole_ GUARDED_BY(mutex_);
  Tally part_ GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Stage>> stages_ GUARDED_BY(mutex_);
};

}  // namespace penstock::stream
