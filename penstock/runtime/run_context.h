// What the workers of one rank know about the current run. Internal to runtime.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "penstock/model/loss.h"
#include "penstock/runtime/batch_source.h"
#include "penstock/runtime/device/device_links.h"
#include "penstock/runtime/device/ready_board.h"
#include "penstock/runtime/device/replica_exchange.h"
#include "penstock/runtime/fabric/fabric.h"
#include "penstock/runtime/loss_scale.h"
#include "penstock/runtime/run_options.h"
#include "penstock/schedule/lazy_schedule.h"
#include "penstock/schedule/worker_table.h"
#include "penstock/util/precision.h"

namespace penstock::runtime {

/// All workers read it and none changes it; state that workers share and change is behind the
/// fabric and `ready`.
struct RunContext {
  RunContext(const schedule::Schedule& schedule, const BatchSource& source,
             const RunOptions& options, Fabric& fabric);

  const schedule::Schedule& schedule;
  const schedule::WorkerTable table;
  const BatchSource& source;
  const RunOptions& options;
  Fabric& fabric;
  /// Its lists are run instead of those of `schedule`, which is its sample. Null: a finite run.
  const schedule::LazySchedule* endless = nullptr;
  /// Endless runs: `source`, whose micro-batches come one after another.
  BatchSource* stream = nullptr;
  bool training = true;
  model::Loss loss = model::make_loss({});  ///< PipelineOptions
  int64_t gradient_groups = 1;
  int64_t steps_before = 0;                           ///< optimiser steps before the run
  FloatType gradient_precision = FloatType::Float32;  ///< PipelineOptions
  std::vector<bool> rounded_layers = {};              ///< PipelineOptions
  /// PipelineOptions::precision.
  Precision precision = Precision::Float32;
  /// By micro-batch, the version of the weights that its loss is computed with; only where the loss
  /// is scaled.
  std::vector<int64_t> loss_versions = {};
  LossScaleState loss_scale = {};  ///< before the run
  bool sums_updates = false;       ///< of weights, instead of gradients (asynchronous)
  /// Of a worker of this rank.
  at::Device device_of(WorkerId worker) const {
    return site == nullptr || site->device_of_worker.empty()
               ? at::Device(at::kCPU)
               : site->device_of_worker[worker.index()];
  }
  /// What the stage's replicas add their gradients through; null: the fabric.
  ReplicaExchange* exchange_of(StageId stage) const {
    return stage.index() < exchanges.size() ? exchanges[stage.index()].get() : nullptr;
  }
  /// Whether all workers of the run are here, on one GPU.
  bool is_on_one_gpu() const;
  std::vector<bool> splits_backward;  ///< per stage: the schedule has I and W for it
  const Site* site = nullptr;         ///< of the rank; null: all workers are here, on the CPU
  ReadyBoard* ready = nullptr;        ///< of the rank; null: no worker has a GPU
  DeviceLinks* links = nullptr;       ///< of the rank; null: the host's memory is between ranks
  /// By stage, where its replicas add gradients in the memory of GPUs; otherwise null or missing.
  std::vector<std::unique_ptr<ReplicaExchange>> exchanges = {};
  MessageLayout layout = {};                       ///< what messages hold; where there are links
  std::vector<int64_t> planned_memory_bytes = {};  ///< PipelineOptions
};

}  // namespace penstock::runtime
