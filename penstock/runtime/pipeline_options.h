// What a pipeline is made with, and the state of its layers for checkpoints.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <vector>

#include "penstock/model/device/devices.h"
#include "penstock/model/parameter_optimizers.h"
#include "penstock/model/team_loss.h"
#include "penstock/plan/boundary_coding.h"
#include "penstock/plan/gradient_sync.h"
#include "penstock/plan/sync_precision.h"
#include "penstock/util/ids.h"
#include "penstock/util/numbers/precision.h"

namespace penstock::runtime {

class World;

/// Two stages between which values travel in a coding; with teams, whole stages.
struct CodedBoundary {
  StageId from;
  StageId to;
  plan::BoundaryCoding coding;
};

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
  /// Under `diloco`: a round ends after every so many steps, counted from the very first, however
  /// these are cut into runs. How the common weights step then.
  int64_t sync_every = 1;
  plan::OuterStep outer = {};
  int64_t sync_rank = 0;  ///< under `powersgd`: of the sums
  /// In which gradients travel between replicas (plan/sync_precision.h). Not `asynchronous` with 16
  /// bits.
  FloatType gradient_precision = FloatType::Float32;
  /// In which the layers compute; the stored weights and the sums of gradients are float32. Float16
  /// scales the loss and needs a schedule with NORM.
  Precision precision = Precision::Float32;
  /// By layer: whether gradients are rounded to `gradient_precision` although the stage has one
  /// replica, as where it has several. For reference runs; empty: none.
  std::vector<bool> rounded_layers = {};
  /// Boundaries whose values and gradients are coded (boundary_codings.h); the others' are not.
  std::vector<CodedBoundary> boundaries = {};
  /// By stage: whether its replicas share out the optimiser's state (weight_shares.h), so that each
  /// keeps and steps its share of the weights only; the same weights bit for bit. Nothing to a
  /// stage with one replica. Not `asynchronous`. Empty: none.
  std::vector<bool> shard_optimizer = {};
  /// Every training run is under WeightPolicy::Flush. Then replicas of one process have one copy of
  /// their weights in memory and share out the optimiser's state, on CPUs and in float32, where the
  /// optimiser steps numbers by themselves.
  bool flushes = false;
  /// Under `asynchronous`: how many steps a replica may be ahead of the slowest one.
  int64_t staleness = 0;
  /// Of the model's output; called on the threads of the workers that make it.
  model::Loss loss = model::make_loss({});
  /// `loss` may take the memory of an output that nobody else reads, as those of make_loss() do
  /// (model::MiniBatchSize::output_is_free). False for a loss that reads its output afterwards.
  bool loss_takes_output = false;
  /// Where the model's output stays in the members' parts (shard::ShardedModel): how it is divided,
  /// and the loss of a part. Losses that need the whole output get it.
  std::optional<model::Division> output_parts = {};
  model::TeamLoss team_loss = {};
  /// Of single parameters (of the whole model's, where the model has parts), instead of the one for
  /// all; must outlive the pipeline. Null: none.
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

}  // namespace penstock::runtime
