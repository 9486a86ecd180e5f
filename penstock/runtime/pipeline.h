// The executor: trains a model by walking a schedule, one thread per worker, tensors by reference
// (docs/threads.md).
//
//   Pipeline pipeline(model, stage_of_layer, {1, 1}, *optimizer, {.seed = 1});
//   RunResult result = pipeline.run(schedule, source,
//       {.learning_rate = [](int64_t) { return 0.1; }});
//   double loss = result.mini_batches.back().mean_loss();
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "penstock/model/model.h"
#include "penstock/model/optimizer.h"
#include "penstock/runtime/batch_source.h"
#include "penstock/schedule/schedule.h"
#include "penstock/schedule/timeline.h"

namespace penstock::runtime {

struct PipelineOptions {
  uint64_t seed = 1;                            ///< initial weights
  int threads_per_worker = 1;                   ///< intra-op threads
  std::chrono::milliseconds deadline{300'000};  ///< for every single wait
  /// ScheduleShape::worker_of_replica: the worker of every replica, stage by stage; empty: one
  /// each, in that order.
  std::vector<int> worker_of_replica = {};
  /// Under flush gradients of a mini-batch are summed in so many groups of micro-batches
  /// (gradient_buffer.h), a multiple of every stage's number of replicas; 0: the least common one.
  /// Runs with the same number have the same sums bit for bit, however many replicas their stages
  /// have. A replica of a stage with r > 1 keeps groups / r sets of gradients, but no more than it
  /// has micro-batches; docs/weights.md says how many one of r = 1 keeps. Under other policies a
  /// stage with r replicas has r groups.
  int64_t gradient_groups = 0;
};

/// Sums over the samples of one mini-batch.
struct MiniBatchStats {
  double loss_sum = 0;
  int64_t correct = 0;
  int64_t samples = 0;
  /// L2 norm of the mini-batch's gradient over all weights, before clipping; 0 where the schedule
  /// has no NORM. Not known yet in RunOptions::on_mini_batch.
  double gradient_norm = 0;
  double mean_loss() const { return samples > 0 ? loss_sum / static_cast<double>(samples) : 0; }
};

struct RunOptions {
  /// Learning rate of optimiser step `s` since the pipeline was made or loaded; required unless the
  /// schedule is forward-only. Called from worker threads.
  std::function<double(int64_t step)> learning_rate = {};
  /// Gradients whose norm over the whole model is larger are scaled down to it; 0: no clipping.
  /// Otherwise the schedule must have NORM (ScheduleShape::global_norm).
  double max_grad_norm = 0;
  /// Set to true from anywhere to end early: mini-batches that have begun are finished, later ones
  /// are left out.
  const std::atomic<bool>* stop = nullptr;
  /// Called when all samples of a mini-batch have gone through the loss; from a worker thread, one
  /// call at a time.
  std::function<void(MiniBatchId, const MiniBatchStats&)> on_mini_batch = {};
  /// Messages per channel before a send waits; at least what verify::min_credits() says for the
  /// schedule.
  int64_t credits = 4;
  /// Keep the timeline of at most this many actions per worker; 0: none.
  int64_t max_timeline_events = 1'000'000;
};

struct RunResult {
  schedule::Timeline timeline;               ///< measured
  std::vector<MiniBatchStats> mini_batches;  ///< those that were run, in order
  int64_t wall_ns = 0;
  int64_t waiting_ns = 0;              ///< over all workers
  std::vector<int64_t> peak_versions;  ///< per worker
};

/// State of one layer for checkpoints: weights, buffers, optimiser state (one list per state name).
struct LayerSnapshot {
  model::Tensors weights;
  model::Tensors buffers;
  std::vector<model::Tensors> optimizer_state;
};

struct Replica;

class Pipeline {
 public:
  /// `replicas` has one entry per stage. Keeps references to model and optimizer. Throws
  /// ConfigError when a stage has no layer, options.worker_of_replica do not fit
  /// (schedule::validate) or options.gradient_groups is no common multiple of the replicas.
  Pipeline(const model::Model& model, std::vector<StageId> stage_of_layer,
           std::vector<int> replicas, const model::Optimizer& optimizer,
           const PipelineOptions& options);
  ~Pipeline();

  /// The pairs of stages between which tensors flow; what lower() needs.
  std::vector<schedule::StageLink> links() const;

  /// Whether stages share weights (graph::tie_groups), so that the schedule must have NORM
  /// (ScheduleShape::global_norm), where the shared gradients are added up; then only the flush
  /// policy is supported.
  bool needs_norm() const;
  /// The number in use under flush (PipelineOptions::gradient_groups).
  int64_t gradient_groups() const { return gradient_groups_; }

  /// Runs the whole schedule and returns when all workers are done. A schedule with backwards
  /// trains; one without evaluates (no dropout, no gradient). The schedule must be lowered,
  /// verified and of this pipeline's shape: its stages, replicas and worker_of_replica, with
  /// messages exactly where tensors cross from worker to worker, and NORM where it is needed;
  /// ConfigError says what does not fit. On the first failure all workers stop and that failure is
  /// thrown: RuntimeError naming stage, micro-batch and action; TimeoutError with who waits for
  /// what. Stages may then have taken different numbers of steps: load() a checkpoint before
  /// running again. Not reentrant.
  RunResult run(const schedule::Schedule& schedule, const BatchSource& source,
                const RunOptions& options);

  /// Optimiser steps taken so far.
  int64_t steps() const { return steps_; }

  /// Every layer's state, in graph order; buffers averaged over replicas. Refers to the pipeline's
  /// own tensors where it can: copy what has to outlast the next run.
  std::vector<LayerSnapshot> snapshot() const;
  /// Continues from this state.
  void load(const std::vector<LayerSnapshot>& layers, int64_t steps);
  /// Makes the buffers (running statistics) of all replicas equal to their average.
  void average_buffers();

 private:
  struct Stages;
  /// Refuses a schedule that does not fit.
  void check(const schedule::Schedule& schedule, const RunOptions& options) const;
  Replica& replica(size_t stage, int number) const;

  const model::Model* model_;
  const model::Optimizer* optimizer_;
  PipelineOptions options_;
  std::vector<StageId> stage_of_layer_;
  std::vector<int> replicas_;
  int64_t gradient_groups_ = 1;
  std::unique_ptr<Stages> stages_;
  int64_t steps_ = 0;
};

}  // namespace penstock::runtime
