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

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "penstock/model/model.h"
#include "penstock/model/optimizer.h"
#include "penstock/runtime/batch_source.h"
#include "penstock/runtime/loss_scale.h"
#include "penstock/runtime/pipeline_options.h"
#include "penstock/runtime/run_options.h"
#include "penstock/schedule/endless_schedule.h"
#include "penstock/schedule/schedule.h"

namespace penstock::runtime {

class World;

struct RunRequest;
struct Stages;
class StageWorker;

class Pipeline {
 public:
  /// `replicas` has one entry per stage. Keeps references to model and optimizer. Throws
  /// ConfigError when a stage has no layer, options.worker_of_replica do not fit
  /// (schedule::validate) or options.gradient_groups is no common multiple of the replicas. Where
  /// the model has parts (model/parts.h), each member of a team is a stage
  /// (schedule::with_teams()), and layers of snapshots are those of Model::whole().
  Pipeline(const model::Model& model, std::vector<StageId> stage_of_layer,
           std::vector<int> replicas, const model::Optimizer& optimizer,
           const PipelineOptions& options);
  ~Pipeline();

  /// The pairs of stages between which tensors flow; what lower() needs.
  std::vector<schedule::StageLink> links() const;

  /// Of each weight's state in snapshots, in their order (Optimizer::state_names(), and more where
  /// replicas train by themselves: round_layout.h).
  std::vector<std::string> state_names() const;
  /// Whether replicas train by themselves for rounds of steps (GradientSync::DiLoCo).
  bool has_rounds() const;
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
  int64_t gradient_groups() const;

  /// Runs the whole schedule and returns when all workers of all ranks are done. A schedule with
  /// backwards trains; one without evaluates (no dropout, no gradient). The schedule must be
  /// lowered, verified and of this pipeline's shape: its stages, replicas and worker_of_replica,
  /// with messages exactly where tensors cross from worker to worker, and NORM where it is needed;
  /// ConfigError says what does not fit. On the first failure all workers stop and that failure is
  /// thrown: RuntimeError naming stage, micro-batch and action; TimeoutError with who waits for
  /// what. steps() then counts those that all stages have made, unless is_torn(); running
  /// statistics may have seen more. Not reentrant.
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
  /// Whether a run that failed has left replicas of this rank with different numbers of steps, or
  /// within one: the next run throws RuntimeError, until load().
  bool is_torn() const { return is_torn_; }

  World& world() const;
  /// The GPUs of this rank's workers, ascending, each once.
  std::vector<at::Device> gpus() const;
  /// Whether this rank has a replica of the stage that makes the layer's values, or of a part of
  /// it.
  bool holds(LayerId layer) const;

  /// Between runs: the weights and the running means that the optimiser keeps of them
  /// (OptimizerSpec::averages) change places, on all replicas of this rank. Not for states that are
  /// shared out.
  void exchange_averages();

  /// Carried states (RunOptions::carried_places): texts begin anew with the next run.
  void forget_carried();
  /// Training goes on from these, as carried() gave them. `samples`: of each of a mini-batch's
  /// micro-batches, whatever they were then. Layers that the rank does not hold are not looked at.
  void load_carried(const std::vector<model::Tensors>& layers, const std::vector<int64_t>& samples);

  // Collective: every rank calls them.

  /// Every layer's state, in graph order, in the host's memory; buffers averaged over replicas.
  /// Refers to the pipeline's own tensors where it can: copy what has to outlast the next run.
  std::vector<LayerSnapshot> snapshot() const;
  /// By layer, what it carries (Layer::carried()), over all `places` of a mini-batch: [samples,
  /// ...] each, float32, in the host's memory. Nothing where the layer carries nothing or this rank
  /// has not the first replica.
  std::vector<model::Tensors> carried(int64_t places) const;
  /// Between runs, with rounds: the weights of all replicas become those that the round would make
  /// if it ended now, until hide_rounds(), which is not collective.
  void show_rounds();
  void hide_rounds();
  /// Makes the buffers (running statistics) of all replicas equal to their average.
  void average_buffers();

  /// Continues from this state. Layers that the rank does not hold are not looked at. Not
  /// collective.
  void load(const std::vector<LayerSnapshot>& layers, int64_t steps);

 private:
  struct Running;
  RunResult run(const RunRequest& request);
  /// After a failure: counts the steps that all replicas have made.
  void count_steps(const std::vector<std::unique_ptr<StageWorker>>& workers);
  /// Links between GPUs of different ranks, if the world has them.
  void open_links(const schedule::Schedule& schedule);

  std::unique_ptr<Stages> stages_;
  std::unique_ptr<Running> running_;
  int64_t steps_ = 0;
  bool is_torn_ = false;
  LossScaleState loss_scale_;
};

}  // namespace penstock::runtime
