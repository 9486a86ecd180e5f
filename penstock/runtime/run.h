// What is decided before one run of a pipeline: one value, for the fabric and for the workers of a
// rank. Internal to runtime.
//
//   const Run run = make_run(stages, between, {.schedule = schedule, ...}, steps, loss_scale);
//   const std::unique_ptr<Fabric> fabric = world.open(run.setup, wait);
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "penstock/model/loss.h"
#include "penstock/runtime/batch_source.h"
#include "penstock/runtime/boundary_codings.h"
#include "penstock/runtime/device/rank_devices.h"
#include "penstock/runtime/fabric/fabric.h"
#include "penstock/runtime/loss_scale.h"
#include "penstock/runtime/pipeline_options.h"
#include "penstock/runtime/run_options.h"
#include "penstock/schedule/lazy_schedule.h"
#include "penstock/schedule/worker_table.h"

namespace penstock::runtime {

class GradientBoard;
struct Stages;

/// What Pipeline::run() and run_endless() are asked for.
struct RunRequest {
  const schedule::Schedule& schedule;
  const BatchSource& source;
  const RunOptions& options;
  /// Its lists are run instead of those of `schedule`, which is its sample. Null: a finite run.
  const schedule::LazySchedule* endless = nullptr;
  /// Endless runs: `source`, whose micro-batches come one after another.
  BatchSource* stream = nullptr;
};

/// What the workers of a rank hand each other tensors through, from run to run.
struct Handover {
  ReadyBoard ready;
  std::unique_ptr<DeviceLinks> links;  ///< null: the host's memory is between ranks
};

/// All workers read it and none changes it; state that workers share and change is behind the
/// fabric and `devices`.
struct Run {
  const PipelineOptions& pipeline;
  RunRequest request;
  RunSetup setup;  ///< for the fabric
  schedule::WorkerTable table;
  bool training;
  model::Loss loss;  ///< of the model's output in whatever the layers compute
  int64_t gradient_groups;
  std::vector<bool> splits_backward;  ///< per stage: the schedule has I and W for it
  int64_t steps_before;               ///< optimiser steps before the run
  LossScaleState loss_scale;          ///< before the run
  /// By micro-batch, the version of the weights that its loss is computed with; only where the loss
  /// is scaled.
  std::vector<int64_t> loss_versions = {};
  RankDevices devices;
  BoundaryCodings codings;
  /// By stage, of replicas that share their weights; null: they add their gradients otherwise.
  std::vector<std::shared_ptr<GradientBoard>> boards = {};

  const schedule::Schedule& schedule() const { return setup.schedule; }
  const BatchSource& source() const { return request.source; }
  const RunOptions& options() const { return request.options; }
  /// Whether what is summed are changes of weights, instead of gradients.
  bool sums_updates() const { return setup.sync == plan::GradientSync::Asynchronous; }
};

/// `handover` is used until the run has ended. `steps`: optimiser steps before the run.
Run make_run(const Stages& stages, Handover& handover, const RunRequest& request, int64_t steps,
             const LossScaleState& loss_scale);

}  // namespace penstock::runtime
