// What a training run has learned and measured: a plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "penstock/model/model.h"
#include "penstock/schedule/schedule.h"
#include "penstock/schedule/timeline.h"
#include "penstock/train/metric.h"
#include "penstock/util/process/memory_kinds.h"

namespace penstock::train {

struct EpochSummary {
  int64_t epoch = 0;
  double loss = 0;            ///< mean over the epoch's targets
  double train_accuracy = 0;  ///< while training; NaN where the loss has no right and wrong
  std::optional<double> test_loss;
  std::optional<double> test_accuracy;
  /// Mean over the epoch's steps, before clipping; empty when norms are not computed.
  std::optional<double> grad_norm;
  double samples_per_s = 0;
  int64_t train_ns = 0;
  bool is_whole = true;  ///< false: the run was stopped within it
};

/// What one rank of a job says of its part.
struct RankSummary {
  int64_t peak_memory_bytes = 0;  ///< of the process, while training
  int64_t peak_tensor_bytes = 0;  ///< as TrainResult's
  ProcessMemory memory = {};      ///< as TrainResult's
  int64_t sent_bytes = 0;         ///< of tensors, to other ranks
  int64_t received_bytes = 0;
  int64_t clock_error_ns = 0;  ///< by how much its lanes in the timeline may be off
};

struct DevicePeak {
  std::string device;  ///< "cuda:0"
  std::string name;    ///< as its vendor calls it
  int64_t peak_memory_bytes = 0;
};

struct TrainResult {
  /// Mean of every mini-batch, over its real number of samples, in order.
  std::vector<double> losses;
  std::vector<double> learning_rates;  ///< as losses
  /// As losses, before clipping; empty without norms (see max_grad_norm; or stages share weights).
  std::vector<double> grad_norms;
  std::vector<EpochSummary> epochs;
  double final_loss = 0;         ///< mean over the last (at most) 50 mini-batches of this run
  int64_t final_loss_steps = 0;  ///< how many those were; the last one is number `steps`
  /// Cores that other programs of this machine used meanwhile, a mean; empty: not known.
  std::optional<double> busy_others;
  std::optional<double> test_loss;
  std::optional<double> test_accuracy;  ///< empty: not evaluated, or no right and wrong
  std::vector<Evaluation> evaluations;  ///< of this run, in order
  std::optional<size_t> best;           ///< the first of them with the best metric
  bool reached_target = false;          ///< by the last of them
  double throughput_samples_per_s = 0;
  double idle_share = 0;
  int64_t peak_memory_bytes = 0;  ///< of the largest process, while training
  /// Of this process's tensors on the CPU, without those of the data set: what a plan predicts. 0
  /// where they are not counted (model::count_tensor_memory()).
  int64_t peak_tensor_bytes = 0;
  /// What this process held in the segment in which it was largest, and each worker's tensors by
  /// kind at the worker's own peak; zeros for workers of other ranks, but on rank 0, and where
  /// tensors are not counted.
  ProcessMemory memory = {};
  std::vector<MemoryBytes> worker_memory = {};
  /// The GPUs of this rank's workers, by its allocator's counters while training.
  std::vector<DevicePeak> devices;
  int64_t steps = 0;  ///< optimiser steps, over all runs
  /// In float16: steps that were left out, over all runs, and the loss's scale at the end.
  int64_t skipped_steps = 0;
  double loss_scale = 1;
  bool interrupted = false;
  /// Samples of each segment that counts for throughput: one that was trained without draining the
  /// pipeline in between.
  std::vector<int64_t> segments;
  /// One per rank, on rank 0; empty without TrainOptions::world.
  std::vector<RankSummary> ranks;
  /// Measured; of the longest segment. On rank 0 all workers, by its clock; elsewhere the workers
  /// of other ranks have no events.
  schedule::Timeline timeline;
  schedule::Schedule schedule;         ///< that segment's schedule, as far as it was run
  std::vector<int64_t> peak_versions;  ///< per worker
  /// Per layer, at the end; empty unless TrainOptions::keep_weights, and for layers of other ranks
  /// but on rank 0.
  std::vector<model::Tensors> weights;
};

}  // namespace penstock::train
