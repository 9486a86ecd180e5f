// Learns from a stream: every stage works on another frame; the newest frames are taken, late ones
// are dropped by the queue. Runs until the stream ends, plans again while it runs when the stages'
// times have left the plan, and hands out copies of the weights without stopping.
//
//   frames::FrameQueue queue(frames::open_source("generated", {}));
//   OnlineLoop loop(model, queue, {.task = frames::Task::Pixels, .plan = plan, .learning_rate =
//   0.01}); const StreamSummary summary = loop.run();
//
// One thread per stage, one of the queue, and one that watches (docs/threads.md). run() is for one
// thread; everything else is thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/frames/frame_queue.h"
#include "penstock/frames/task.h"
#include "penstock/model/device/devices.h"
#include "penstock/model/model.h"
#include "penstock/model/parameter_optimizers.h"
#include "penstock/plan/plan.h"
#include "penstock/runtime/pipeline.h"
#include "penstock/stream/frame_feed.h"
#include "penstock/stream/frame_loss.h"
#include "penstock/stream/stream_meter.h"

namespace penstock::stream {

/// Weights and optimiser state of all layers after the same number of frames.
struct StreamState {
  std::vector<runtime::LayerSnapshot> layers = {};
  int64_t steps = 0;  ///< frames that have been learned from
  /// The number of the source's frame that comes next; -1: not known.
  int64_t next_frame = -1;
  plan::Plan plan = {};
};

/// What the watching thread saw since its last look.
struct StreamLook {
  StreamNumbers part;  ///< since the look before
  StreamNumbers whole;
  frames::QueueCounters queue;
  std::vector<StageTimes> stages;
  bool is_last = false;  ///< the stream has ended
};

struct StreamOptions {
  frames::Task task = frames::Task::Reconstruct;
  plan::Plan plan = {};  ///< strategy online or serial; one worker per stage
  model::OptimizerSpec optimizer = {};
  double learning_rate = 0.01;
  int threads_per_worker = 1;
  /// What each of so many stages computes on; an empty list: all on the CPU. Empty: so, always.
  std::function<std::vector<at::Device>(int stages)> device_of_stage = {};
  /// runtime::PipelineOptions::device_graphs.
  bool device_graphs = false;
  /// Where the devices come from; must outlive the loop. Null: those of the build.
  model::Devices* installed = nullptr;
  uint64_t seed = 1;
  int64_t max_frames = 0;                           ///< 0: as many as come
  int64_t deadline_ns = 0;                          ///< latency that a frame should keep; 0: none
  std::chrono::milliseconds longest_stall{10'000};  ///< then the stream is given up
  /// Where the weights begin; nothing: anew.
  std::optional<StreamState> state = {};
  const std::atomic<bool>* stop = nullptr;
  std::chrono::milliseconds between_looks{200};
  /// Called from the watching thread after each look, and once after the end.
  std::function<void(const StreamLook&)> on_look = {};
  /// Asked from the watching thread after each look but the last: another plan to go on with, if it
  /// is worth the change. The frames that are under way are finished first.
  std::function<std::optional<plan::Plan>(const StreamLook&, const plan::Plan& now)> replan = {};
  /// Takes the states that save_soon() asked for, from the watching thread. What it throws ends the
  /// stream.
  std::function<void(const StreamState&)> on_state = {};
  /// Called for each frame, in order, by the worker of the last stage: it should be quick.
  std::function<void(const FrameResult&)> on_frame = {};
  /// As runtime::RunOptions::on_stuck.
  std::function<void(const std::string& failure)> on_stuck = {};
};

struct StreamSummary {
  StreamNumbers numbers;
  frames::QueueCounters queue;
  FeedEnd end;
  int64_t replans = 0;
  /// Why stages did not have the graphs that were wanted: "stage 1: ...".
  std::vector<std::string> graph_obstacles = {};
  StreamState state;  ///< at the end
};

class OnlineLoop {
 public:
  /// Keeps references. Throws ConfigError for a plan that is not of this model, has replicas or
  /// another strategy, a model whose output the task does not fit, and a task that needs labels
  /// where there are none.
  OnlineLoop(const model::Model& model, frames::FrameQueue& queue, StreamOptions options);
  ~OnlineLoop();

  /// Until the stream ends, `stop` is set or max_frames are learned from. Throws what a stage fails
  /// with, and RuntimeError when the loss is not a number any more; a broken or stalled source is
  /// no failure (StreamSummary::end).
  StreamSummary run();

  /// After run() has thrown: what the stream came to before it failed, without its state.
  StreamSummary summary_of_failure(const std::string& what);
  /// Asks for the weights after the frames that have been taken by now; options.on_state gets them
  /// soon.
  void save_soon();

  const FrameFeed& feed() const { return feed_; }
  const FrameLoss& loss() const { return *loss_; }
  const StreamMeter& meter() const { return meter_; }
  /// The plan that runs now.
  plan::Plan plan() const;

 private:
  class Save;
  /// One run of a pipeline; whether another one is to follow.
  bool run_plan();
  runtime::PipelineOptions pipeline_options(const plan::Plan& plan) const;
  void begin_plan(const plan::Plan& plan, const runtime::Pipeline& pipeline);
  bool end_plan(const runtime::Pipeline& pipeline);
  void forget_run();
  void add_to_save(const runtime::Pipeline& pipeline, StageId stage, MiniBatchId frame);
  /// Throws RuntimeError for those of a training that has diverged.
  Losses losses_of(MiniBatchId frame, const runtime::MiniBatchStats& stats);
  /// One round of the watching thread.
  void watch();
  StreamLook look(bool is_last);
  StreamSummary summary_of(const StreamLook& last, FeedEnd end) const;

  const model::Model& model_;
  frames::FrameQueue& queue_;
  StreamOptions options_;
  model::ParameterOptimizers optimizers_;
  std::shared_ptr<FrameLoss> loss_;
  FrameFeed feed_;
  StreamMeter meter_;
  std::atomic<bool> stop_run_{false};  ///< the pipeline's: the user's, or for another plan
  std::atomic<bool> save_wanted_{false};
  int64_t replans_ = 0;
  mutable Mutex mutex_;
  plan::Plan plan_ GUARDED_BY(mutex_);
  std::optional<plan::Plan> next_plan_ GUARDED_BY(mutex_);
  std::shared_ptr<Save> save_ GUARDED_BY(mutex_);  ///< under way
  bool is_running_ GUARDED_BY(mutex_) = false;     ///< a pipeline
  int64_t steps_before_ GUARDED_BY(mutex_) = 0;    ///< the pipeline's run
  std::exception_ptr failure_ GUARDED_BY(mutex_);  ///< of the watching thread
  StreamState state_;
  std::vector<std::string> graph_obstacles_;
};

}  // namespace penstock::stream
