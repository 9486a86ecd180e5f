// What auto_plan.h plans for: a plain value that knows nothing of libtorch.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "penstock/cluster/cluster.h"
#include "penstock/model/loss_spec.h"
#include "penstock/model/optimizer_spec.h"
#include "penstock/profile/profile.h"
#include "penstock/util/precision.h"

namespace penstock::tool {

struct AutoPlanRequest {
  std::string strategy = "auto";
  std::string sync = "ordered";  ///< a method of adding gradients, or auto
  std::string sync_precision = "float32";
  bool shard_optimizer = false;  ///< wherever a stage has replicas; otherwise if memory needs it
  Precision precision = Precision::Float32;  ///< in which the model computes
  std::string weights;
  int workers = 1;
  /// The cluster of so many workers, given how fast threads sum gradients; empty: they are in this
  /// process.
  std::function<cluster::Cluster(int workers, int64_t copy_bandwidth_bytes_per_s)> cluster = {};
  std::optional<cluster::Level> between_gpus = {};  ///< of this process; nothing: as threads
  bool sums_wait = false;  ///< cluster::Level::sums_wait of the job's levels
  int local_workers = 0;   ///< of them, on this machine; 0: all
  /// Measures the model for so many micro-batches per mini-batch; empty: auto_plan() does, here.
  std::function<profile::Profile(int64_t micro_batches)> measure = {};
  int threads_per_worker = 1;
  std::string device = {};     ///< that is measured, as ProfilerOptions::device
  bool device_graphs = false;  ///< ProfilerOptions::device_graphs
  int64_t mini_batch_size = 64;
  int64_t micro_batches = 0;    ///< per mini-batch; 0: chosen
  int chunks = 0;               ///< stages per worker, where there is a choice; 0: chosen
  int64_t slack = -1;           ///< of eager-1f1b; -1: chosen
  int64_t keep = 0;             ///< of zb-auto and zb-auto-v; 0: chosen
  int64_t gradient_groups = 0;  ///< planner::PlanOptions
  bool global_norm = false;     ///< all workers wait for the norm of all gradients before each step
  std::string profile_path;     ///< measured before; empty: measure now
  int profile_samples = 5;
  /// That will be trained on, over all epochs. Profiling goes on for up to a second while it takes
  /// less than about a tenth of the training.
  int64_t training_samples = 0;
  bool is_quiet = false;                    ///< no progress on standard error
  const std::atomic<bool>* stop = nullptr;  ///< ends the measurement, once true
  uint64_t seed = 1;
  model::OptimizerSpec optimizer;
  model::LossSpec loss = {};
};

}  // namespace penstock::tool
