// The options of a run of a pipeline, and its result.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "penstock/model/loss.h"
#include "penstock/runtime/fabric/mini_batch_stats.h"
#include "penstock/schedule/timeline.h"
#include "penstock/util/ids.h"

namespace penstock::runtime {

struct RunOptions {
  /// Learning rate of optimiser step `s` since the pipeline was made or loaded; required unless the
  /// schedule is forward-only. Called from worker threads.
  std::function<double(int64_t step)> learning_rate = {};
  /// Under plan::Compensation::Rate: the step, counted as those of learning_rate, from which on
  /// delays no longer divide the rate.
  int64_t fade_steps = 0;
  /// Of the same steps, instead of the optimiser's own (model::StepContext::momentum); nothing, or
  /// empty: its own.
  std::function<std::optional<double>(int64_t step)> momentum = {};
  /// Of the same steps: model::StepContext::average_share; empty: 1.
  std::function<double(int64_t step)> average_share = {};
  /// Gradients with a larger norm over the whole model are scaled down to this norm; 0: no
  /// clipping. If it is not 0, the schedule must have NORM (ScheduleShape::global_norm).
  double max_grad_norm = 0;
  /// Set it to true from any thread to end early: workers finish mini-batches that have begun and
  /// leave out later ones.
  const std::atomic<bool>* stop = nullptr;
  /// Called when all samples of a mini-batch have gone through the loss; on rank 0, from a worker
  /// thread, one call at a time. False ends the run early, as `stop` does.
  std::function<bool(MiniBatchId, const MiniBatchStats&)> on_mini_batch = {};
  /// Without backwards: what is made of the model's output, instead of the pipeline's loss. Called
  /// from worker threads, several at a time where the last stage has replicas. Empty: the loss.
  model::Loss loss = {};
  /// Micro-batches of a mini-batch, each of which goes on with the texts of the one in its place in
  /// the mini-batch before (model::Layer::carried()): a multiple of the replicas of each stage that
  /// carries states. Training goes on with those of the run before, up to
  /// Pipeline::forget_carried(); an evaluation begins anew. 0: all samples begin with zeros.
  int64_t carried_places = 0;
  /// Without backwards: sees the weights and inputs of each layer before its forward pass. Called
  /// from worker threads, several at a time. Empty: not called.
  std::function<void(MicroBatchId, LayerId, std::span<const at::Tensor> weights,
                     std::span<const at::Tensor> inputs)>
      on_layer = {};
  /// Messages per channel before a send waits; at least verify::min_credits() of the schedule.
  int64_t credits = 4;
  /// Keep the timeline of at most this many actions per worker; 0: none.
  int64_t max_timeline_events = 1'000'000;
  /// Called after each action, from its worker's thread: the measured event, whose times are those
  /// of steady_clock in ns. Must be quick. Empty: not called.
  std::function<void(WorkerId, const schedule::TimelineEvent&)> on_action = {};
  /// Called after each step of a stage's weights, from its worker's thread, when the step has been
  /// given to the worker's device: without replicas Pipeline::copy_of_stage() then has the weights
  /// of this step and of no later one. Empty: not called.
  std::function<void(StageId, MiniBatchId)> on_step = {};
  /// Called once, from the thread that called run(), when the run has failed and some worker has
  /// not returned `stuck_after` later; with the failure and what these workers do. run() cannot
  /// return before they do: a program that must not hang ends the process here. Empty: run() waits.
  std::function<void(const std::string& failure)> on_stuck = {};
  std::chrono::milliseconds stuck_after{10'000};
};

struct RunResult {
  /// Measured. With several ranks the other ranks' workers have no events.
  schedule::Timeline timeline;
  std::vector<MiniBatchStats> mini_batches;  ///< those that were run, in order; on every rank
  int64_t wall_ns = 0;
  int64_t waiting_ns = 0;              ///< over the rank's workers
  std::vector<int64_t> peak_versions;  ///< per worker; 0 for those of other ranks
  /// Steps of this run that were left out, because a gradient was not finite in float16.
  int64_t skipped_steps = 0;
};

}  // namespace penstock::runtime
