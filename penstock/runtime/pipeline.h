// The executor: trains a model by walking a schedule, one thread per worker. What crosses workers
// goes through the fabric of the pipeline's world (fabric/world.h): threads of one process unless
// told otherwise. With several ranks every rank makes the same pipeline and the same calls, and
// holds only the replicas of its own workers (docs/threads.md, docs/fabrics.md).
//
//   Pipeline pipeline(model, stage_of_layer, {1, 1}, *optimizer, {.seed = 1});
//   RunResult result = pipeline.run(schedule, source,
//       {.learning_rate = [](int64_t) { return 0.1; }});
//   double loss = result.mini_batches.back().mean_loss();
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "penstock/model/device/devices.h"
#include "penstock/model/loss.h"
#include "penstock/model/model.h"
#include "penstock/model/optimizer.h"
#include "penstock/model/parameter_optimizers.h"
#include "penstock/model/precision.h"
#include "penstock/plan/sync_precision.h"
#include "penstock/runtime/batch_source.h"
#include "penstock/runtime/loss_scale.h"
#include "penstock/runtime/run_options.h"
#include "penstock/schedule/endless_schedule.h"
#include "penstock/schedule/schedule.h"
#include "penstock/schedule/worker_table.h"
#include "penstock/util/precision.h"

namespace penstock::runtime {

class ReplicaExchange;
class World;

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
  /// How replicas on several ranks sum their gradients (plan/gradient_sync.h); those of one rank
  /// share memory.
  plan::GradientSync sync = plan::GradientSync::Ordered;
  /// In which gradients travel between replicas (plan/sync_precision.h). Not `asynchronous` with 16
  /// bits.
  FloatType gradient_precision = FloatType::Float32;
  /// In which the layers compute; the stored weights and the sums of gradients are float32. Float16
  /// scales the loss and needs a schedule with NORM.
  Precision precision = Precision::Float32;
  /// By layer: whether gradients are rounded to `gradient_precision` although the stage has one
  /// replica, as where it has several. For reference runs; empty: none.
  std::vector<bool> rounded_layers = {};
  /// By stage: whether its replicas share out the optimiser's state (weight_shares.h), so that each
  /// keeps and steps its share of the weights only; the same weights bit for bit. Nothing to a
  /// stage with one replica. Not `asynchronous`. Empty: none.
  std::vector<bool> shard_optimizer = {};
  /// Under `asynchronous`: how many steps a replica may be ahead of the slowest one.
  int64_t staleness = 0;
  /// Of the model's output; called on the threads of the workers that make it.
  model::Loss loss = model::make_loss({});
  /// Of single parameters, instead of the one for all; must outlive the pipeline. Null: none.
  const model::ParameterOptimizers* optimizers = nullptr;
  /// The ranks that run it together; must outlive the pipeline. Null: this process alone.
  World* world = nullptr;
  /// Without a world: Site::device_of_worker.
  std::vector<at::Device> device_of_worker = {};
  /// Where the devices of this rank's workers come from; must outlive the pipeline. Null: those of
  /// the build.
  model::Devices* devices = nullptr;
  /// Stages on GPUs make F and B by CUDA graphs where they can (stage_graphs.h).
  bool device_graphs = false;
  /// Per worker: what the plan said that it needs, for the report of a device whose memory is full;
  /// empty: nothing was said.
  std::vector<int64_t> planned_memory_bytes = {};
};

/// State of one layer for checkpoints: weights, buffers, optimiser state (one list per state name).
struct LayerSnapshot {
  /// Whether this rank keeps the layer (that of the first replica does); otherwise the rest is
  /// empty.
  bool here = true;
  model::Tensors weights = {};
  model::Tensors buffers = {};
  std::vector<model::Tensors> optimizer_state = {};
};

struct Message;
struct RunSetup;
struct TensorLayout;

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
  /// In 16 bits: the kinds of this rank's layers that libtorch cannot compute so on their devices,
  /// and that compute in float32 instead; ascending.
  std::vector<std::string> kinds_in_float32() const;
  /// Why stages of this rank make passes without the graphs that were wanted: "stage 1: ...".
  std::vector<std::string> graph_obstacles() const;
  /// In float16: by how much the loss is scaled and how many steps were left out so far. Travels
  /// with checkpoints.
  const LossScaleState& loss_scale() const { return loss_scale_; }
  void set_loss_scale(const LossScaleState& state) { loss_scale_ = state; }
  /// The number in use under flush (PipelineOptions::gradient_groups).
  int64_t gradient_groups() const { return gradient_groups_; }

  /// Runs the whole schedule and returns when all workers of all ranks are done. A schedule with
  /// backwards trains; one without evaluates (no dropout, no gradient). The schedule must be
  /// lowered, verified and of this pipeline's shape: its stages, replicas and worker_of_replica,
  /// with messages exactly where tensors cross from worker to worker, and NORM where it is needed;
  /// ConfigError says what does not fit. On the first failure all workers stop and that failure is
  /// thrown: RuntimeError naming stage, micro-batch and action; TimeoutError with who waits for
  /// what. Stages may then have taken different numbers of steps: load() a checkpoint before
  /// running again. Not reentrant.
  RunResult run(const schedule::Schedule& schedule, const BatchSource& source,
                const RunOptions& options);

  /// Runs until the source ends or options.stop is set, one micro-batch after another; those that
  /// are under way then are finished. For strategies that take one micro-batch per step, one worker
  /// per stage and one rank; the schedule must have been verified (verify::verify_endless()). Keeps
  /// no statistics: see options.on_mini_batch and options.on_action. Otherwise as run().
  RunResult run_endless(const schedule::EndlessSchedule& schedule, BatchSource& source,
                        const RunOptions& options);

  /// A copy of the weights and optimiser state of a stage that this rank holds. During a run: only
  /// from the thread of the stage's worker (RunOptions::on_step), and without replicas. The
  /// layers' numbers are those of the result's keys.
  std::map<LayerId, LayerSnapshot> copy_of_stage(StageId stage) const;

  /// Optimiser steps taken so far, the same on every rank.
  int64_t steps() const { return steps_; }

  World& world() const { return *world_; }
  /// The GPUs of this rank's workers, ascending, each once.
  std::vector<at::Device> gpus() const;
  /// Whether this rank has a replica of the stage that makes the layer's values.
  bool holds(LayerId layer) const;

  // Collective: every rank calls them.

  /// Every layer's state, in graph order, in the host's memory; buffers averaged over replicas.
  /// Refers to the pipeline's own tensors where it can: copy what has to outlast the next run.
  std::vector<LayerSnapshot> snapshot() const;
  /// Makes the buffers (running statistics) of all replicas equal to their average.
  void average_buffers();

  /// Continues from this state. Layers that the rank does not hold are not looked at. Not
  /// collective.
  void load(const std::vector<LayerSnapshot>& layers, int64_t steps);

 private:
  struct Stages;
  void choose_precisions(const schedule::WorkerTable& table);
  /// Where the tensors of this rank's replicas of a stage are; the CPU where it has none.
  at::Device memory_of_stage(StageId stage, const schedule::WorkerTable& table) const;
  /// Refuses a schedule that does not fit.
  void check(const schedule::Schedule& schedule, const RunOptions& options) const;
  /// Whether the stage's replicas add their gradients in the memory of GPUs (device/device_sum.h);
  /// the same on every rank.
  bool sums_on_gpus(size_t stage) const;
  std::unique_ptr<ReplicaExchange> make_exchange(size_t stage,
                                                 const schedule::WorkerTable& table) const;
  RunSetup setup_of(const schedule::Schedule& schedule, const BatchSource& source,
                    const RunOptions& options) const;
  /// `endless`: null for a finite run of `schedule`.
  RunResult run(const schedule::Schedule& schedule, const schedule::LazySchedule* endless,
                const BatchSource& source, BatchSource* stream, const RunOptions& options);
  std::vector<TensorLayout> layout_of(const Message& message, int64_t samples) const;
  bool shares_state(size_t stage) const {
    return stage < options_.shard_optimizer.size() && options_.shard_optimizer[stage] &&
           replicas_[stage] > 1;
  }
  /// The optimiser's state of the stage, as WeightStore::state() without a share, on the rank of
  /// its first replica; elsewhere empty. Collective.
  std::vector<model::Tensors> whole_state(size_t stage) const;
  /// Buffers of the stage, averaged over its replicas; empty where this rank has none. Collective.
  model::Tensors mean_buffers(size_t stage) const;

  const model::Model* model_;
  const model::Optimizer* optimizer_;
  PipelineOptions options_;
  std::vector<StageId> stage_of_layer_;
  std::vector<int> replicas_;
  std::vector<model::LayerPrecision> precisions_;  ///< by layer; those of other ranks: as on CPUs
  int64_t gradient_groups_ = 1;
  std::unique_ptr<World> own_world_;  ///< where none was given
  World* world_ = nullptr;
  std::unique_ptr<Stages> stages_;
  int64_t steps_ = 0;
  LossScaleState loss_scale_;
};

}  // namespace penstock::runtime
