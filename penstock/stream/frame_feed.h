// Gives the pipeline one frame of a queue after another, as micro-batches of one sample.
//
//   FrameFeed feed(queue, {.task = frames::Task::Reconstruct, .frames_under_way = 7});
//   pipeline.run_endless(schedule, feed, options);
//   feed.end();      // why there are no more frames
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "penstock/frames/frame_queue.h"
#include "penstock/frames/task.h"
#include "penstock/runtime/batch_source.h"
#include "penstock/util/process/mutex.h"

namespace penstock::stream {

struct FeedOptions {
  frames::Task task = frames::Task::Reconstruct;
  /// A frame is forgotten when so many later ones have come; at least the most that are under way
  /// in the pipeline.
  int64_t frames_under_way = 1;
  int64_t max_frames = 0;  ///< the feed ends after so many; 0: with the queue
  /// The feed ends when no frame has come for so long.
  std::chrono::milliseconds longest_stall{10'000};
  uint64_t seed = 1;
};

/// Why the feed has ended.
struct FeedEnd {
  std::string reason;     ///< for people
  bool is_error = false;  ///< the source is broken or has stalled
};

/// next() is for the thread of the first stage. What belongs to a micro-batch may be read by the
/// pipeline's workers once they have its tensors; the rest is thread-safe.
class FrameFeed final : public runtime::BatchSource {
 public:
  /// Keeps a reference. Throws ConfigError when the task needs labels and the source has none.
  FrameFeed(frames::FrameQueue& queue, const FeedOptions& options);

  Next next(MicroBatchId micro_batch) override;
  /// [1, channels, height, width].
  model::Tensors inputs(MicroBatchId micro_batch) const override;
  /// By the task: [1, channels, height, width] float32, [1, height, width] or [1] int64; undefined:
  /// nothing is to be learned from the frame.
  at::Tensor targets(MicroBatchId micro_batch) const override;
  int64_t samples(MicroBatchId) const override { return 1; }
  int64_t mini_batch_samples(MiniBatchId) const override { return 1; }
  int64_t mini_batch_targets(MiniBatchId) const override { return 0; }  // those of the frame
  uint64_t seed(MicroBatchId micro_batch) const override;

  /// When the frame came, on steady_clock.
  int64_t captured_ns(MicroBatchId micro_batch) const { return slot(micro_batch).captured_ns; }
  /// The frame's number in its source.
  int64_t number(MicroBatchId micro_batch) const { return slot(micro_batch).number; }
  /// The number of the source's frame with which another stream would go on after this one: the
  /// next, or where the next frame is predicted the newest, which has been a target only.
  int64_t next_frame(MicroBatchId micro_batch) const {
    return number(micro_batch) + (options_.task == frames::Task::Predict ? 0 : 1);
  }

  /// Micro-batches count from 0 again, in the next run of a pipeline.
  void restart(int64_t frames_under_way);
  /// Frames that have been given so far, over all runs.
  int64_t given() const;
  /// Those of this run.
  int64_t given_in_run() const;
  /// Nothing while it has not ended.
  std::optional<FeedEnd> ended() const;

  /// A copy of the newest frame; its number is -1 before the first. Costs a copy of each frame as
  /// soon as it has been asked for.
  frames::Frame newest() const;

 private:
  struct Slot {
    at::Tensor frame;
    at::Tensor input;
    at::Tensor target;
    at::Tensor labels;  ///< of pixels: memory of `target`, kept for later frames
    int64_t captured_ns = 0;
    int64_t number = 0;
  };
  const Slot& slot(MicroBatchId micro_batch) const {
    return slots_[micro_batch.index() % slots_.size()];
  }
  Next end(std::string reason, bool is_error);
  void fill(MicroBatchId micro_batch);

  frames::FrameQueue& queue_;
  FeedOptions options_;
  int classes_;
  frames::Frame frame_;  ///< the one that was taken last
  at::Tensor previous_;  ///< Predict: the frame before it
  std::vector<Slot> slots_;
  int64_t last_came_ns_;
  mutable Mutex mutex_;
  int64_t given_ GUARDED_BY(mutex_) = 0;
  int64_t given_before_ GUARDED_BY(mutex_) = 0;  ///< in earlier runs
  std::optional<FeedEnd> end_ GUARDED_BY(mutex_);
  mutable bool is_watched_ GUARDED_BY(mutex_) = false;
  frames::Frame newest_ GUARDED_BY(mutex_);
};

}  // namespace penstock::stream
